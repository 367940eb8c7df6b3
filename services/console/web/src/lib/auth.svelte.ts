/** Who is signed in. */
import { ApiError, request, steadily, useKey, whenSignedOut } from './api';
import { isPage, returnPath } from './address';
import { forgetDrafts, type Writer } from './drafts';
import { go, route } from './router.svelte';
import type { AuthView, Me } from './types';

let me = $state.raw<Me | undefined>();
let known = $state(false);

export const auth = {
  get me() {
    return me;
  },
  /** Whether the service has said who we are, or that we are nobody. */
  get known() {
    return known;
  },
  may: (need: string) => me?.may.includes(need) ?? false,
  get org() {
    return me?.organisation.id ?? '-';
  },
};

/** Whose drafts this page keeps. */
export const writer = (): Writer => ({ id: me?.actor.id ?? '', login: !!me?.login });

/** Returns the ways to sign in: those of an organisation, or of the only one that the service has. */
export const ways = (org?: string) =>
  steadily<AuthView>('GET', `/platform/auth${org ? `?organization=${encodeURIComponent(org)}` : ''}`, { open: true });

/** Finds out who we are. */
export async function recognise() {
  whenSignedOut(leave);
  try {
    enter(await steadily<Me>('GET', '/platform/me', { open: true }));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    me = undefined;
  }
  known = true;
}

/** Shows the page for signing in, which comes back to this one. */
function leave() {
  me = undefined;
  if (route.now.page === 'login') return;
  const here = location.pathname + location.search;
  const back = here.startsWith('/o/') ? `?return=${encodeURIComponent(here)}` : '';
  go(`/login${back}`, { replace: true });
}

/**
 * Signs in with a key. A person's begins a login, which the browser keeps as a cookie. A service account has no logins:
 * its key stays in the memory of this page and goes with each request.
 */
export async function signInWithKey(key: string): Promise<Me> {
  try {
    return enter(await request<Me>('POST', '/platform/login/key', { body: { key }, open: true }));
  } catch (error) {
    if (!(error instanceof ApiError) || ![401, 403, 409].includes(error.status)) throw error;
    useKey(key);
    try {
      return enter(await request<Me>('GET', '/platform/me', { open: true }));
    } catch {
      useKey(undefined);
      throw error;
    }
  }
}

/** Signs an owner in with a recovery code, which is used up by it. */
export async function signInWithCode(code: string): Promise<Me> {
  return enter(await request<Me>('POST', '/platform/login/recovery', { body: { code }, open: true }));
}

/** Signs in with the one-time link that the service printed. */
export async function signInWithLink(token: string): Promise<Me> {
  return enter(await request<Me>('POST', '/platform/login/link', { body: { token }, open: true }));
}

function enter(view: Me): Me {
  // A browser may be shared: what somebody else began to write here is not for the next one.
  forgetDrafts(view.actor.id);
  me = view;
  known = true;
  return view;
}

/** Goes where a sign-in leads: to the page that wanted it, to the first run, or to the sessions. */
export function arrive(view: Me, query: URLSearchParams) {
  const sessions = `/o/${view.organisation.id}/sessions`;
  const isFirst = view.first && !query.has('again');
  go(isFirst ? '/first' : (returnPath(query) ?? sessions), { replace: true });
}

export async function rename(name: string) {
  me = await request<Me>('PATCH', '/platform/me', { body: { name } });
}

export async function signOut() {
  let next: string | undefined;
  try {
    // A login that began at an identity provider ends there too.
    next = (await request<{ next?: string } | undefined>('POST', '/platform/logout', { open: true }))?.next;
  } finally {
    useKey(undefined);
    forgetDrafts();
    me = undefined;
    if (next && isPage(next)) location.assign(next);
    else go('/login', { replace: true });
  }
}
