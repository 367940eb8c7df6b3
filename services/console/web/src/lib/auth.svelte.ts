/** Who is signed in. */
import { ApiError, request, steadily, useKey, whenSignedOut } from './api';
import { returnPath } from './address';
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
    return me?.organization.id ?? '-';
  },
};

/** The organisation's name in an answer is spelled in one of two ways. */
function told(view: Me & { organisation?: Me['organization'] }): Me {
  return { ...view, organization: view.organization ?? view.organisation };
}

const KEY_ONLY: AuthView = { key: true, link: false, sso: [] };

/** Returns the ways to sign in. */
export async function ways(): Promise<AuthView> {
  try {
    return await steadily<AuthView>('GET', '/platform/auth', { open: true });
  } catch (error) {
    if (error instanceof ApiError && (error.status === 401 || error.status === 404)) return KEY_ONLY;
    throw error;
  }
}

/** Finds out who we are. */
export async function recognise() {
  whenSignedOut(leave);
  try {
    me = told(await steadily<Me>('GET', '/platform/me', { open: true }));
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

const ALL = ['session.read', 'session.prompt', 'provider.manage'];

/** Signs in with a key. */
export async function signInWithKey(key: string): Promise<Me> {
  try {
    return enter(await request<Me>('POST', '/platform/login/key', { body: { key }, open: true }));
  } catch (error) {
    // A service without logins takes the key with each request. It stays in the memory of this page.
    if (!(error instanceof ApiError) || error.reason || error.status === 429) throw error;
    useKey(key);
    try {
      await request('GET', '/platform/session?limit=1', { open: true });
    } catch (refused) {
      useKey(undefined);
      throw refused;
    }
    return enter({
      actor: { kind: 'service', id: 'key', name: null },
      organization: { id: '-', name: null },
      role: 'owner',
      may: ALL,
      login: null,
    });
  }
}

/** Signs in with the one-time link that the service printed. */
export async function signInWithLink(token: string): Promise<Me> {
  return enter(await request<Me>('POST', '/platform/login/link', { body: { token }, open: true }));
}

function enter(view: Me): Me {
  me = told(view);
  known = true;
  return me;
}

/** Goes where a sign-in leads: to the page that wanted it, to the first run, or to the sessions. */
export function arrive(view: Me, query: URLSearchParams) {
  const sessions = `/o/${view.organization.id}/sessions`;
  go(view.first ? '/first' : (returnPath(query) ?? sessions), { replace: true });
}

export async function rename(name: string) {
  me = told(await request<Me>('PATCH', '/platform/me', { body: { name } }));
}

export async function signOut() {
  try {
    await request('POST', '/platform/logout', { open: true });
  } finally {
    useKey(undefined);
    me = undefined;
    go('/login', { replace: true });
  }
}
