/** Loads the page anew when the service has a newer console than this window: the files that it still wants are gone then. */

const KEPT = 'oc-renewed-for';

/** Returns the script that a page begins with. Its name changes with each build. */
export const entryOf = (html: string) => /<script[^>]+src="([^"]+)"/.exec(html)?.[1];

/** What the decision needs of the window. */
export interface Host {
  /** The script that this window began with. */
  own: string | undefined;
  /** Fetches the page as the service has it now; none when it cannot be reached. */
  page: () => Promise<string | undefined>;
  /** What an earlier window of this tab was loaded anew for. */
  before: () => string | null;
  remember: (entry: string) => void;
  reload: () => void;
}

/** Loads the page anew, once for each build, if there is another build now. Returns whether it does. */
export async function renew(host: Host): Promise<boolean> {
  const html = await host.page();
  const entry = html && entryOf(html);
  if (!entry || entry === host.own || entry === host.before()) return false;
  host.remember(entry);
  host.reload();
  return true;
}

const host: Host = {
  get own() {
    return document.querySelector('script[type="module"][src]')?.getAttribute('src') ?? undefined;
  },
  page: async () => {
    try {
      const response = await fetch('/', { cache: 'no-store', signal: AbortSignal.timeout(10_000) });
      return response.ok ? await response.text() : undefined;
    } catch {
      return undefined;
    }
  },
  before: () => {
    try {
      return sessionStorage.getItem(KEPT);
    } catch {
      return null;
    }
  },
  remember: (entry) => {
    try {
      sessionStorage.setItem(KEPT, entry);
    } catch {
      // Without a memory it might load anew again; the other entry ends that.
    }
  },
  reload: () => location.reload(),
};

/** Watches for files that cannot be loaded. Whoever waits for one shows a way to try again meanwhile. */
export function watchFiles() {
  addEventListener('vite:preloadError', () => void renew(host));
}
