// What people met on phones and with long sessions. Each line of the output is a step that was seen.
import { axe, faultsOf } from './accessible.mjs';
import { launch, signIn, tab, tellScreens } from './browser.mjs';

const { service, key, browser: program } = JSON.parse(process.argv[2]);
const seen = (step) => console.log(step);
const browser = await launch(program);
const faults = [];

/** Windows in which everything is seen: a desk, and two phones. */
const DESK = { width: 1440, height: 900 };
const PHONES = [
  { width: 390, height: 844 },
  { width: 360, height: 740 },
];

const prompt = (page) => page.getByLabel('Prompt', { exact: true });
const log = (page) => page.getByRole('log');
const button = (page, name) => page.getByRole('button', { name, exact: true });
const idle = (page) => button(page, 'Stop').waitFor({ state: 'detached' });
const left = (page) => log(page).evaluate((box) => Math.round(box.scrollHeight - box.scrollTop - box.clientHeight));
const check = (is, words) => is || faults.push(words);

async function say(page, words) {
  await prompt(page).fill(words);
  await page.keyboard.press('Enter');
  await log(page).getByText(words, { exact: true }).last().waitFor();
}

const phone = (size) => tab(browser, service, faults, { viewport: size, isMobile: true, hasTouch: true });

/** Waits until the page has measured its rows, and returns how far it is from its end. */
async function settled(page) {
  await log(page).locator('article').first().waitFor({ state: 'attached' });
  for (let before = -1, now = 0; before !== now; before = now, now = await log(page).evaluate((box) => box.scrollHeight)) {
    await page.waitForTimeout(700);
  }
  return left(page);
}

async function long(page) {
  await page.goto(`${service}/o/-/new`);
  await prompt(page).fill('create a.md containing "# Hello" then read a.md');
  await page.keyboard.press('Enter');
  await log(page).getByText('Done, says the simulated model').waitFor();
  await idle(page);
  for (const words of ['run seq 1 900', 'say 900 words', 'say 2500 words']) {
    await say(page, words);
    await idle(page);
  }
  return page.url();
}

async function ends(page, url, name) {
  await page.goto(url);
  check((await settled(page)) < 3, `${name}: a long session opens ${await left(page)} px above its end`);
  await page.getByRole('link', { name: 'Back to the sessions' }).or(page.getByRole('link', { name: 'Sessions', exact: true })).first().click();
  await page.locator('[data-session]').first().waitFor();
  await page.goBack();
  check((await settled(page)) < 3, `${name}: after Back it is ${await left(page)} px above its end`);
}

async function walk() {
  const page = await tab(browser, service, faults, { viewport: DESK });
  await page.addInitScript(axe);
  await signIn(page, service, key);
  const url = await long(page);
  await ends(page, url, 'desk');
  await log(page).hover();
  await page.mouse.wheel(0, -400);
  await page.waitForTimeout(400);
  check((await left(page)) > 300, 'a scroll up is not kept');
  await button(page, 'Go to the end').click();
  await button(page, 'Go to the end').waitFor({ state: 'detached' });
  seen('opens at its end');

  await say(page, 'read a.md and also list the files and also search for Hello');
  await log(page).locator('[data-folded="3"]').waitFor();
  await idle(page);
  faults.push(...(await faultsOf(page, 'a long session')));

  // What is copied from an output is the output.
  await say(page, "run printf 'one\\n\\ntwo\\n'; exit 3");
  const run = log(page).locator('[data-tool=shell]').last();
  await run.getByText('exit 3', { exact: true }).waitFor();
  await idle(page);
  check((await run.getByText('two', { exact: true }).count()) === 1, 'the end of an output is not seen without unfolding');
  await run.getByRole('button', { name: /Ran/ }).click();
  const copied = await run.getByRole('region').evaluate((box) => (getSelection().selectAllChildren(box), getSelection().toString()));
  check(copied.trim().startsWith('one\n\ntwo'), `an output is copied as ${JSON.stringify(copied)}`);
  seen('copied');

  // Safari ends a composition before the key that ended it.
  await prompt(page).fill('にほんご');
  await prompt(page).dispatchEvent('keydown', { key: 'Enter', keyCode: 229, bubbles: true, cancelable: true });
  check((await prompt(page).inputValue()) === 'にほんご', 'the end of a composition sends the prompt');
  await prompt(page).fill('');

  // From session to session, and to a new one, without a pointer.
  await log(page).focus();
  await page.keyboard.press('Control+k');
  await page.getByRole('dialog').getByRole('combobox').fill('create a.md');
  await page.getByRole('option', { name: /create a\.md/ }).first().waitFor();
  faults.push(...(await faultsOf(page, 'going to a session')));
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  check(page.url() === url, `going to a session led to ${page.url()}`);
  check((await page.getByRole('list', { name: 'Recent' }).getByRole('link').count()) > 0, 'no recent sessions');
  await log(page).focus();
  await page.keyboard.press('c');
  await page.getByRole('heading', { name: 'New session' }).waitFor();
  await page.waitForFunction(() => document.activeElement?.getAttribute('aria-label') === 'Prompt');
  await page.keyboard.type('the draft');
  check((await prompt(page).inputValue()) === 'the draft', 'the letter of a new session is in its prompt');
  seen('goes with keys');

  // A window that is older than the service is loaded anew, once, with its draft.
  let loads = 0;
  page.on('load', () => loads++);
  await page.route('**/_/a/Usage-*.js', (route) => route.fulfill({ status: 404, body: 'no such file' }));
  await page.route(`${service}/`, (route) => route.fulfill({ contentType: 'text/html', body: '<script type="module" src="/_/a/index-newer.js"></script>' }));
  await page.getByRole('link', { name: 'Usage' }).click();
  await page.getByRole('heading', { name: 'This page could not be loaded' }).waitFor();
  await page.waitForTimeout(1500);
  check(loads === 1, `an old window was loaded anew ${loads} times`);
  await page.unroute('**/_/a/Usage-*.js');
  const draft = await page.context().newPage();
  await draft.goto(`${service}/o/-/new`);
  await prompt(draft).waitFor();
  check((await prompt(draft).inputValue()) === 'the draft', 'the draft is lost with its tab');
  seen('renewed');

  // A long paste is folded; one that is too long makes no session.
  const list = async () => (await draft.request.get(`${service}/platform/session?limit=100`)).json();
  const before = (await list()).length;
  // As a paste comes: typing it would take the driver minutes.
  const paste = (text) =>
    prompt(draft).evaluate((area, text) => ((area.value = text), area.dispatchEvent(new Event('input', { bubbles: true }))), text);
  await paste(`${'some words '.repeat(100)}\n`.repeat(1_000));
  await button(draft, 'Send').click();
  await draft.getByText('one may have 1 MiB').waitFor();
  check((await list()).length === before, 'a prompt that is too long leaves a session');
  await paste(`${'a line of a long paste '.repeat(20)}\n`.repeat(400));
  await button(draft, 'Send').click();
  const bubble = log(draft).locator('.bubble');
  await bubble.waitFor();
  check((await bubble.boundingBox()).height < 700, 'a long paste stands there with its full height');
  await draft.close();
  seen('pasted');

  for (const size of PHONES) {
    const name = `${size.width} px`;
    const small = await phone(size);
    await small.addInitScript(axe);
    await signIn(small, service, key);
    await ends(small, url, name);
    await prompt(small).fill('run sleep 12');
    await small.keyboard.press('Enter');
    check((await prompt(small).inputValue()) === 'run sleep 12\n', `${name}: Enter makes no line`);
    await button(small, 'Send').click();
    await button(small, 'Stop').waitFor();
    check((await button(small, 'Send').count()) === 0, `${name}: Stop does not stand in the place of Send`);
    await prompt(small).fill('say 3 words');
    for (const what of ['Steer', 'Queue', 'Stop', 'Send']) {
      const box = await button(small, what).first().boundingBox();
      check(box && box.x >= 0 && box.x + box.width <= size.width, `${name}: ${what} is not on the screen: ${JSON.stringify(box)}`);
    }
    faults.push(...(await faultsOf(small, `a phone of ${name} while it works`)));
    await button(small, 'Send').click();
    await small.getByRole('list', { name: 'Waiting prompts' }).getByText('say 3 words').waitFor();
    await log(small).getByText(/^w0 w1 w2$/).last().waitFor();
    await idle(small);
    for (const path of ['sessions', 'new', 'me', 'needs']) {
      await small.goto(`${service}/o/-/${path}`);
      await small.getByRole('heading').first().waitFor();
      check(!(await small.evaluate(() => document.documentElement.scrollWidth > innerWidth)), `${name}: ${path} is wider than the phone`);
    }
    await small.context().close();
    seen(`phone ${size.width}`);
  }

  await page.goto(`${service}/o/-/new`);
  await prompt(page).fill('a secret draft');
  await page.goto(`${service}/o/-/me`);
  await button(page, 'Sign out').click();
  await page.getByRole('heading', { name: 'Sign in to OpenCode Cloud' }).waitFor();
  const kept = await page.evaluate(() => Object.keys(localStorage).filter((name) => name.startsWith('oc-draft')));
  check(kept.length === 0, `drafts after signing out: ${kept}`);
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
