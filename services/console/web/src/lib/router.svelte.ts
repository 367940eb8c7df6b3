/** The page that the address names. */
import { parse } from './address';

const read = () => parse(location.pathname, location.search);
let current = $state.raw(read());

export const route = {
  get now() {
    return current;
  },
};

export function go(path: string, options: { replace?: boolean } = {}) {
  if (options.replace) history.replaceState(null, '', path);
  else history.pushState(null, '', path);
  current = read();
  scrollTo(0, 0);
}

/** Returns the path of a page of the organisation that is open. */
export const to = (page: string) => `/o/${current.org || '-'}/${page}`;

/** Lets links of our own pages change the page without loading it anew. */
export function start() {
  addEventListener('popstate', () => (current = read()));
  document.addEventListener('click', (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element).closest('a');
    if (!link || link.target || link.hasAttribute('download')) return;
    const url = new URL(link.href, location.href);
    if (url.origin !== location.origin || !/^\/(o\/|login|first|$)/.test(url.pathname)) return;
    event.preventDefault();
    go(url.pathname + url.search);
  });
}
