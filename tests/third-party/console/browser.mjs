// A browser at the service: its tabs, and signing in by a key.
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

const LIMIT = 60_000;

export const launch = (program) =>
  chromium.launch({ executablePath: program, args: ['--no-sandbox', '--disable-dev-shm-usage'] });

/**
 * Opens a tab with cookies of its own. What must not happen goes to `faults`: faults of scripts, breaches of the policy,
 * requests to anybody else.
 */
export async function tab(browser, service, faults, window = { viewport: { width: 1400, height: 900 } }) {
  const context = await browser.newContext(window);
  const page = await context.newPage();
  page.setDefaultTimeout(LIMIT);
  page.on('pageerror', (error) => faults.push(`script: ${String(error).slice(0, 400)}`));
  page.on('console', (message) => {
    if (message.text().startsWith('breach ')) faults.push(message.text());
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(service)) faults.push(`asked somebody else: ${request.url()}`);
  });
  await page.addInitScript(() =>
    addEventListener('securitypolicyviolation', (event) =>
      console.log(`breach of ${event.violatedDirective}: ${event.blockedURI} ${event.sample} ${event.sourceFile}:${event.lineNumber}`),
    ),
  );
  return page;
}

export async function signIn(page, service, key) {
  await page.goto(`${service}/login`);
  await page.getByLabel('Key', { exact: true }).fill(key);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.waitForURL((url) => !url.pathname.startsWith('/login'));
}

const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Says that a step was seen, and waits for a line of input. */
export async function goOnAfter(step) {
  console.log(step);
  await input.next();
}

/** Returns every prompt and answer of a session's page, from the first to the last. */
export async function textsOf(page) {
  const box = page.getByRole('log');
  const texts = {};
  // The page follows its end until somebody scrolls.
  await box.evaluate((box) => (box.dispatchEvent(new WheelEvent('wheel')), (box.scrollTop = 0)));
  for (let at = 0, end = 1; at < end; at += 400) {
    end = await box.evaluate((box, at) => (box.dispatchEvent(new WheelEvent('wheel')), (box.scrollTop = at), box.scrollHeight), at);
    await page.waitForTimeout(80);
    Object.assign(
      texts,
      await box.evaluate((box) =>
        Object.fromEntries(
          [...box.querySelectorAll('article.user, article.assistant')].map((row) => [
            row.dataset.message,
            [...row.querySelectorAll(':scope > .bubble, :scope > .markdown')].map((part) => part.innerText.replace(/\s+/g, ' ').trim()).join(' '),
          ]),
        ),
      ),
    );
  }
  return texts;
}

/** Says what all tabs show, after a failure. */
export async function tellScreens(browser) {
  for (const context of browser.contexts()) {
    for (const page of context.pages()) {
      console.error(page.url(), (await page.locator('body').innerText().catch(() => '')).slice(-3000));
      if (process.env.CONSOLE_PICTURE) await page.screenshot({ path: process.env.CONSOLE_PICTURE }).catch(() => {});
    }
  }
}
