// The rules of accessibility, for a page in both themes.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

// The page's policy lets no text become a program; the driver may bring one.
export const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Returns the serious faults of a page that has begun with `axe`. */
export async function faultsOf(page, name) {
  const faults = [];
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await page.waitForTimeout(250);
    const found = await page.evaluate(async () => {
      const { violations } = await window.axe.run(document, { resultTypes: ['violations'] });
      return violations
        .filter(({ impact }) => impact === 'serious' || impact === 'critical')
        .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ target, any }) => `${target} ${any[0]?.message ?? ''}`).join(' | ')}`);
    });
    faults.push(...found.map((fault) => `${name}, ${colorScheme}: ${fault}`));
  }
  await page.emulateMedia({ colorScheme: null, reducedMotion: null });
  return faults;
}
