/** Addresses of the console. */

export interface Route {
  page: string;
  org: string;
  id: string;
  query: URLSearchParams;
}

/** Reads an address. Pages of an organisation stand below `/o/ORG/`. */
export function parse(pathname: string, search: string): Route {
  const parts = pathname.split('/').filter(Boolean);
  const query = new URLSearchParams(search);
  if (parts[0] !== 'o') return { page: parts[0] ?? 'home', org: '', id: '', query };
  return { page: parts[2] ?? 'sessions', org: parts[1] ?? '', id: parts[3] ?? '', query };
}

/** Returns where to go after a sign-in: a page of ours, never another site. */
export function returnPath(query: URLSearchParams): string | undefined {
  const path = query.get('return');
  return path && /^\/o\/[^/\\]/.test(path) && !path.includes('\\') ? path : undefined;
}

/** Leaves the console for another page. An address of a provider is a page, never a script. */
export function visit(url: string) {
  if (isPage(url)) location.assign(url);
  else throw new Error('the provider named an address that is no web page; ask an owner to look at the connection');
}

export const isPage = (url: string) => /^https?:\/\//i.test(url);
