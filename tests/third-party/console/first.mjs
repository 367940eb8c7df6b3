// The first hour of somebody who got the service's link: their name, a provider's key that is tried with a real request, a
// first answer; then the pages of keys and people. Each line of the output is a step that was seen.
import { axe, faultsOf } from './accessible.mjs';
import { goOnAfter, launch, tab, tellScreens } from './browser.mjs';

const { service, link, server, browser: program } = JSON.parse(process.argv[2]);
const seen = (step) => console.log(step);
const browser = await launch(program);
const faults = [];
const button = (page, name) => page.getByRole('button', { name, exact: true });
const check = async (page, name) => faults.push(...(await faultsOf(page, name)));

/** Sets up a server of one's own, with a key that it refuses first. */
async function chooseModel(page) {
  await page.getByRole('heading', { name: 'Choose a model' }).waitFor();
  await page.getByRole('radio', { name: /Your own server/ }).click();
  await page.getByLabel('Base URL').fill(server);
  await page.getByLabel('Model', { exact: true }).fill('simulated');
  await page.getByLabel('Name of the provider').fill('ours');
  await page.getByLabel('API key, if it wants one').fill('sk-wrong');
  await check(page, 'a server of one\'s own');
  await button(page, 'Try it and save').click();
  await page.getByText('Nothing was stored.').waitFor();
  await check(page, 'a key that is refused');
  seen('a wrong key is not stored');
  await goOnAfter('waits accepted');
  await button(page, 'Change it').click();
  await page.getByLabel('API key, if it wants one').fill('sk-right');
  await button(page, 'Try it and save').click();
  await page.getByText('It answered:').waitFor();
  await check(page, 'a key that works');
  seen('the right key answered');
  await button(page, 'Continue').click();
}

async function keys(page) {
  await page.goto(`${service}/o/-/keys`);
  await button(page, 'New key').click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('CI of the website');
  await check(page, 'a new key');
  await dialog.getByRole('button', { name: 'Make the key' }).click();
  await dialog.getByText('Copy the key now').waitFor();
  const secret = (await dialog.innerText()).match(/oc[a-z]*_[A-Za-z0-9_-]{20,}/)?.[0];
  if (!secret) faults.push(`no key is shown: ${await dialog.innerText()}`);
  await check(page, 'a key that was made');
  const status = () => page.evaluate(async (key) => (await fetch('/platform/me', { credentials: 'omit', headers: { authorization: `Bearer ${key}` } })).status, secret);
  if ((await status()) !== 200) faults.push('the new key is refused');
  await button(page, 'I have it').click();
  const row = page.getByRole('listitem').filter({ hasText: 'CI of the website' });
  await row.waitFor();
  await check(page, 'keys');
  await row.getByRole('button', { name: 'Revoke' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke', exact: true }).click();
  await page.getByText('The key is revoked').waitFor();
  const began = Date.now();
  while ((await status()) !== 401 && Date.now() - began < 30_000) await page.waitForTimeout(200);
  console.log(`dark ${Date.now() - began}`);
}

try {
  const page = await tab(browser, service, faults);
  await page.addInitScript(axe);
  await page.goto(link);
  await page.getByRole('heading', { name: 'Welcome. What is your name?' }).waitFor();
  await check(page, 'a name');
  await button(page, 'Continue').click();
  await page.getByText('Write the name that others see').waitFor();
  await page.getByLabel('Name').fill('Grace');
  await page.keyboard.press('Enter');
  seen('named');
  await chooseModel(page);
  await page.getByRole('heading', { name: 'Try it' }).waitFor();
  await check(page, 'a first prompt');
  await page.locator('textarea').fill('say 4 words');
  await page.keyboard.press('Enter');
  await page.getByRole('log').getByText('w0 w1 w2 w3').waitFor();
  seen('first answer');

  await keys(page);
  await page.goto(`${service}/o/-/people`);
  await page.getByText('Grace').first().waitFor();
  await check(page, 'people');
  await page.setViewportSize({ width: 360, height: 740 });
  for (const path of ['people', 'keys', 'me']) {
    await page.goto(`${service}/o/-/${path}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await check(page, `${path} on a phone`);
    if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) faults.push(`${path} is wider than a phone`);
  }
  // The link is spent.
  const other = await tab(browser, service, faults);
  await other.addInitScript(axe);
  await other.goto(link);
  await other.getByRole('alert').waitFor();
  await check(other, 'a link that is spent');
  seen('the link is spent');
  console.log(JSON.stringify({ faults }));
} catch (error) {
  await tellScreens(browser);
  console.error(error, faults);
  process.exitCode = 1;
} finally {
  await browser.close();
}
process.exit();
