// Sign-in at an identity provider, in a browser without a window: a test of the command line, the owner's page with a
// test of its own, a person's login, and its end at both places. Each line of the output is what was seen.
import { axe, faultsOf } from './accessible.mjs';
import { goOnAfter, launch, signIn } from './browser.mjs';

const { service, ticket, key, browser: program } = JSON.parse(process.argv[2]);
const seen = (what) => console.log(JSON.stringify(what));
const faults = [];

const browser = await launch(program);

async function tab() {
  const context = await browser.newContext();
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  page.on('pageerror', (error) => faults.push(`script: ${String(error).slice(0, 400)}`));
  await page.addInitScript(axe);
  return page;
}
const button = (page, name) => page.getByRole('button', { name, exact: true });
const check = async (page, name) => faults.push(...(await faultsOf(page, name)));

try {
  const page = await tab();
  // A browser does not tell the ports of one host apart: the provider's cookies are there too.
  const cookies = async () =>
    (await page.context().cookies(service))
      .filter(({ name }) => name.startsWith('oc-'))
      .map(({ name, httpOnly, sameSite }) => ({ name, httpOnly, sameSite }));
  await page.goto(ticket);
  seen({ tested: await page.locator('body').innerText(), cookies: await cookies() });
  await check(page, 'test');

  const owner = await tab();
  await signIn(owner, service, key);
  await owner.goto(`${service}/o/-/people`);
  await owner.getByRole('link', { name: 'Single sign-on' }).click();
  await button(owner, 'Let people in').click();
  await owner.getByText('Active', { exact: true }).waitFor();
  // The page has the report of an earlier test until the provider has answered.
  await owner.evaluate(() => (window.isLeft = true));
  await button(owner, 'Test').click();
  await owner.waitForFunction(() => !window.isLeft);
  await owner.getByText('The test succeeded').waitFor();
  await check(owner, 'single sign-on');
  await button(owner, 'Add a provider').click();
  await check(owner, 'a provider');
  await owner.keyboard.press('Escape');
  seen({ report: await owner.getByRole('region', { name: 'Example' }).innerText(), at: owner.url() });

  // An old login: the service says so, and the console comes back with a recent one.
  await owner.goto(`${service}/o/-/me`);
  const refusal = { error: { code: 'SIGN_IN_AGAIN', message: 'this needs a recent sign-in' } };
  await owner.route('**/platform/recovery', (route) =>
    route.request().method() === 'POST' ? route.fulfill({ status: 403, json: refusal }) : route.continue(),
  );
  await button(owner, 'Make codes').click();
  await owner.getByRole('heading', { name: 'Sign in again first' }).waitFor();
  await check(owner, 'an old login');
  await owner.unroute('**/platform/recovery');
  await button(owner, 'Sign in again').click();
  await owner.getByRole('heading', { name: 'Sign in again' }).waitFor();
  await button(owner, 'Use a key').click();
  await owner.getByLabel('Key', { exact: true }).fill(key);
  await button(owner, 'Sign in').click();
  await owner.waitForURL(/\/me$/);
  await button(owner, 'Make codes').click();
  const code = await owner.getByRole('dialog').getByRole('listitem').first().innerText();
  await check(owner, 'recovery codes');
  await button(owner, 'I have them').click();

  // Without provider and key: a recovery code. All owners are told.
  const locked = await tab();
  await locked.goto(`${service}/login`);
  await button(locked, 'Use a recovery code').click();
  await locked.getByLabel('Recovery code', { exact: true }).fill(code.toLowerCase());
  await check(locked, 'a recovery code');
  await button(locked, 'Sign in').click();
  await locked.waitForURL((url) => !url.pathname.startsWith('/login'));
  await locked.goto(`${service}/o/-/me`);
  const told = locked.getByRole('status').filter({ hasText: 'with a recovery code' });
  const alert = await told.innerText();
  await locked.getByText('this one', { exact: true }).waitFor();
  await check(locked, 'my account of an owner');
  await told.getByRole('button', { name: 'I have read it' }).click();
  await told.waitFor({ state: 'detached' });
  const logins = await locked.getByRole('region', { name: 'Where you are signed in' }).getByRole('listitem').count();
  await button(locked, 'End all others').click();
  await button(locked, 'End all others').waitFor({ state: 'detached' });
  const others = await owner.evaluate(async () => (await fetch('/platform/me')).status);
  seen({ alert, logins, others, left: await locked.getByRole('region', { name: 'Recovery codes' }).innerText() });

  // Finding security-3, low: a link that somebody else sent replaced one's login without a word.
  await locked.goto('about:blank');
  await locked.goto(`${service}/login#${'x'.repeat(84)}`);
  await locked.getByText('This link signs you in anew').waitFor();
  await check(locked, 'a link of somebody else');
  await button(locked, 'Stay signed in').click();
  await locked.waitForURL((url) => !url.pathname.startsWith('/login'));

  await page.goto(`${service}/login`);
  await button(page, 'Continue with Example').waitFor();
  await check(page, 'login');
  await button(page, 'Continue with Example').click();
  await page.waitForURL(/\/sessions$/);
  const me = await page.evaluate(async () => {
    const answer = await fetch('/platform/me');
    return { status: answer.status, body: await answer.json() };
  });
  seen({ me, cookies: await cookies() });

  await page.goto(`${service}/o/-/me`);
  await button(page, 'Link Example').waitFor();
  await button(page, 'Sign out').click();
  // The provider asks before it ends its own session.
  await page.locator('button[name=logout]').click();
  await page.waitForURL(`${service}/login*`);
  const after = await page.evaluate(async () => (await fetch('/platform/me')).status);
  seen({ after, at: page.url() });

  // Somebody who is disabled: the open page goes dark.
  await page.goto(`${service}/login`);
  await button(page, 'Continue with Example').click();
  await page.waitForURL(/\/sessions$/);
  await page.goto(`${service}/o/-/new`);
  await page.getByLabel('Prompt', { exact: true }).fill('say 2 words');
  await page.keyboard.press('Enter');
  await page.getByRole('log').getByText('w0 w1').waitFor();
  await goOnAfter('waits disabled');
  const began = Date.now();
  await page.getByRole('heading', { name: 'Sign in to OpenCode Cloud' }).waitFor();
  await page.getByRole('log').waitFor({ state: 'detached' });
  seen({ dark: Date.now() - began, faults });
} finally {
  await browser.close();
}
process.exit();
