import { expect, it } from 'vitest';
import { entryOf, renew, type Host } from './renewal';

const html = (entry: string) => `<!doctype html><link href="/_/a/x.css"><script type="module" crossorigin src="${entry}"></script>`;

function tab(own: string) {
  let kept: string | null = null;
  const seen = { reloads: 0 };
  const host = (page: string | undefined): Host => ({
    own,
    page: () => Promise.resolve(page),
    before: () => kept,
    remember: (entry) => void (kept = entry),
    reload: () => void seen.reloads++,
  });
  return { host, seen };
}

it('a window that is older than the service is loaded anew, once for each build', async () => {
  const { host, seen } = tab('/_/a/index-1.js');
  expect(await renew(host(html('/_/a/index-2.js')))).toBe(true);
  // The same build is missing a file after that: another load would change nothing.
  expect(await renew(host(html('/_/a/index-2.js')))).toBe(false);
  expect(await renew(host(html('/_/a/index-3.js')))).toBe(true);
  expect(seen.reloads).toBe(2);
});

it('a window whose file did not come for another reason stays', async () => {
  const { host, seen } = tab('/_/a/index-1.js');
  for (const page of [undefined, '', 'a proxy says 502', html('/_/a/index-1.js')]) expect(await renew(host(page))).toBe(false);
  expect(seen.reloads).toBe(0);
});

it('the entry of a page is its script', () => {
  expect(entryOf(html('/_/a/index-9.js'))).toBe('/_/a/index-9.js');
});
