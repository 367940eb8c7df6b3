/** Signing in again: the service does some things only shortly after a sign-in. */
import { whenStale } from './api';
import { go } from './router.svelte';

let wanted = $state(false);
whenStale(() => (wanted = true));

export const again = {
  /** Whether the service has just refused something for that reason. */
  get wanted() {
    return wanted;
  },
  set wanted(now: boolean) {
    wanted = now;
  },
};

/** Goes to the page for signing in, which comes back to this one. */
export function signInAgain() {
  wanted = false;
  go(`/login?again=true&return=${encodeURIComponent(location.pathname + location.search)}`);
}
