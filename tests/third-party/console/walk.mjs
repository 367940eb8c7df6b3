// A person's day in the console. Each line of the output is a step that was seen on the screen; a line of input lets
// the walk go on after `waits`. A failure ends with what the screen shows.
import { text } from 'node:stream/consumers';
import { axe, faultsOf } from './accessible.mjs';
import { goOnAfter, launch, signIn, tab as opened, tellScreens, textsOf } from './browser.mjs';

const { service, key, browser: program } = JSON.parse(process.argv[2]);
const seen = (step) => console.log(step);

const browser = await launch(program);
/** What must not happen. */
const faults = [];
const tab = () => opened(browser, service, faults);

/** Goes to a page without loading it anew. */
const go = (page, path) =>
  page.evaluate((path) => {
    const org = location.pathname.split('/')[2] ?? '-';
    history.pushState(null, '', path.replace('/o/ORG', `/o/${org}`));
    dispatchEvent(new PopStateEvent('popstate'));
  }, path);

/** Fails when a rule of accessibility is broken on a page, in light or dark. */
const accessible = async (page, name) => faults.push(...(await faultsOf(page, name)));

const prompt = (page) => page.getByLabel('Prompt', { exact: true });
const log = (page) => page.getByRole('log');
async function say(page, words) {
  await prompt(page).fill(words);
  await page.keyboard.press('Enter');
}
const until = (page, words) => log(page).getByText(words).last().waitFor();
const idle = (page) => page.getByRole('button', { name: 'Stop', exact: true }).waitFor({ state: 'detached' });

async function walk() {
  const page = await tab();
  await page.addInitScript(axe);
  await page.goto(`${service}/o/-/needs`);
  await page.getByRole('heading', { name: 'Sign in to OpenCode Cloud' }).waitFor();
  await accessible(page, 'login');
  await page.getByLabel('Key', { exact: true }).fill('oc_wrong');
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByRole('alert').waitFor();
  await signIn(page, service, key);
  seen('signed in');

  await go(page, '/first');
  await page.getByRole('heading', { name: 'Choose a model' }).waitFor();
  await page.getByRole('radio', { name: /Simulated/ }).click();
  await accessible(page, 'first run');
  await page.getByRole('button', { name: 'Use the simulated model' }).click();
  await page.getByRole('button', { name: /create hello.md/ }).click();
  await until(page, 'Done, says the simulated model');
  seen('first answer');

  // A conversation that grows scrolls, also between the two halves of a click.
  await idle(page);
  const write = log(page).locator('[data-tool=write]');
  await write.getByRole('button', { name: /Wrote/ }).click();
  await write.getByText('# Hello').waitFor();
  await accessible(page, 'session');
  seen('tool unfolded');

  await say(page, 'create .env containing A=1 then read .env');
  await page.getByRole('group', { name: 'The session waits for your answer' }).waitFor();
  await accessible(page, 'session that asks');
  const other = await tab();
  await other.addInitScript(axe);
  await signIn(other, service, key);
  await go(other, '/o/ORG/needs');
  await other.getByText('Allow it to read a file?').waitFor();
  await accessible(other, 'needs you');
  await other.getByRole('button', { name: 'Allow once' }).click();
  await other.getByText('Nothing waits for you').waitFor();
  await until(page, 'allowed once');
  await until(page, 'read: 1: A=1');
  await idle(page);
  seen('answered from another tab');

  await say(page, 'read .env');
  await page.getByRole('button', { name: 'Reject…' }).click();
  await page.getByLabel('What should it do instead?').fill('look elsewhere');
  await page.getByRole('button', { name: 'Reject and go on' }).click();
  await until(page, 'rejected');
  await idle(page);
  seen('rejected with words');

  await say(page, 'ask me');
  await page.getByRole('radio', { name: /Tabs/ }).click();
  await accessible(page, 'question');
  await page.getByRole('button', { name: 'Answer', exact: true }).click();
  await until(page, 'As you like');
  await idle(page);
  seen('question answered');

  await say(page, 'run seq 1 900');
  const run = log(page).locator('[data-tool=shell]').last();
  await run.getByRole('button', { name: /Ran/ }).waitFor();
  await idle(page);
  await run.getByRole('button', { name: /Ran/ }).click();
  await run.getByRole('region').getByText('900', { exact: true }).or(run.getByRole('region').getByText('1', { exact: true })).first().waitFor();
  const lines = await run.locator('.line').count();
  if (lines > 150) faults.push(`a long output has ${lines} lines on the page`);
  await run.getByRole('button', { name: /Ran/ }).click();

  // More than the model sees: the two ends first, and all of it for who wants it.
  await say(page, 'run seq 1 30000');
  const cut = log(page).locator('[data-tool=shell]').last();
  await cut.getByText('29999').waitFor();
  await idle(page);
  await cut.getByRole('button', { name: /Ran/ }).click();
  await cut.getByText('The model saw this much of the output.').waitFor();
  await cut.getByRole('button', { name: 'Show all' }).click();
  await cut.getByRole('region', { name: /Output, 3000\d lines/ }).waitFor();
  const saved = page.waitForEvent('download');
  await cut.getByRole('button', { name: 'Download' }).click();
  const kept = await text(await (await saved).createReadStream());
  if (!kept.includes('\n15000\n')) faults.push(`the saved output has ${kept.length} letters`);
  await accessible(page, 'a complete output');
  await cut.getByRole('button', { name: /Ran/ }).click();
  seen('long output');

  await say(page, 'tell the story');
  await until(page, 'It begins well');
  await page.getByRole('button', { name: 'Queue', exact: true }).first().click();
  await say(page, 'say 3 words');
  await page.getByRole('list', { name: 'Waiting prompts' }).getByText('Queued').waitFor();
  await page.getByRole('button', { name: 'Steer', exact: true }).click();
  await say(page, 'say 5 words');
  await page.getByRole('list', { name: 'Waiting prompts' }).getByText('Next').waitFor();
  await goOnAfter('waits steered');
  await until(page, 'w0 w1 w2 w3 w4');
  await until(page, /^w0 w1 w2$/);
  await idle(page);
  seen('steered and queued');

  await say(page, 'hold on');
  await until(page, 'Holding');
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await until(page, 'Stopped.');
  seen('interrupted');

  await say(page, 'recite');
  await until(page, 'Line one');
  await goOnAfter('waits killed');
  await until(page, 'the last line.');
  await idle(page);
  await page.getByText('The connection is lost').waitFor({ state: 'detached' });
  const session = page.url().split('/').at(-1);
  seen(`session ${session}`);
  const texts = await textsOf(page);
  console.log(`texts ${JSON.stringify(texts)}`);

  await go(page, '/o/ORG/sessions');
  await page.locator('[data-session]').first().waitFor();
  await accessible(page, 'sessions');
  await go(page, '/o/ORG/new');
  await page.getByRole('radio', { name: /Git repository/ }).click();
  await prompt(page).fill('list the files');
  await page.getByLabel('Address').fill('ftp://example.com/a/b');
  await page.keyboard.press('Tab');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByText('The address begins with https://').waitFor();
  await accessible(page, 'new session');
  await page.getByRole('button', { name: /^Model/ }).click();
  await page.getByRole('option').first().waitFor();
  await accessible(page, 'picker');
  await page.keyboard.press('Escape');
  await go(page, '/o/ORG/usage/cost');
  await page.getByRole('region', { name: 'Cost by model' }).getByRole('img').waitFor();
  await page.getByText('Show as a table').first().click();
  await accessible(page, 'usage');
  await page.setViewportSize({ width: 390, height: 844 });
  await page.getByRole('link', { name: 'Models' }).click();
  await page.getByRole('region', { name: 'Tokens by model' }).getByRole('img').waitFor();
  await accessible(page, 'usage on a phone');
  await go(page, '/o/ORG/me');
  await page.getByRole('radio', { name: 'Dark' }).click();
  await accessible(page, 'my account');
  const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
  if (wide) faults.push('a page is wider than a phone');
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('heading', { name: 'Sign in to OpenCode Cloud' }).waitFor();
  seen('signed out');
}

try {
  await walk();
  console.log(JSON.stringify({ faults }));
} catch (error) {
  await tellScreens(browser);
  console.error(error, faults);
  process.exitCode = 1;
} finally {
  await browser.close();
}
process.exit();
