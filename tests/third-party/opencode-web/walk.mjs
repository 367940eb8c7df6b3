// A person's day in the released web client. Each line of the output is a step that was seen on the screen; a line
// of input lets the walk go on after `waits`. A failure ends with what the screen shows.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';
import { origin } from './origin.mjs';

const LIMIT = 90_000;
const { service, key, client, home, place, browser: program } = JSON.parse(process.argv[2]);
const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const seen = (step) => console.log(step);

// The released client brings the pages: its own server, with a home of its own, is asked for nothing else.
function pages() {
  const env = { PATH: process.env.PATH, HOME: home };
  for (const what of ['AUTOUPDATE', 'MODELS_FETCH', 'SHARE', 'DEFAULT_PLUGINS', 'LSP_DOWNLOAD']) {
    env[`OPENCODE_DISABLE_${what}`] = '1';
  }
  const args = ['serve', '--port', '0', '--hostname', '127.0.0.1'];
  const server = spawn(client, args, { cwd: home, env, stdio: ['ignore', 'pipe', 'inherit'] });
  process.on('exit', () => server.kill('SIGKILL'));
  return new Promise((resolve, reject) => {
    server.on('exit', () => reject(new Error('the released server ended')));
    createInterface({ input: server.stdout }).on('line', (line) => {
      const url = /listening on (http:\S+)/.exec(line)?.[1];
      if (url) resolve(url);
    });
  });
}

const refused = [];
const base = await origin(service, await pages(), (method, path, status) => {
  if (status >= 400) refused.push(`${status} ${method} ${path}`);
});
const browser = await chromium.launch({ executablePath: program, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
const page = await browser.newPage({ viewport: { width: 1400, height: 900 } });
page.setDefaultTimeout(LIMIT);
const errors = [];
page.on('pageerror', (error) => errors.push(String(error).slice(0, 500)));

const token = encodeURIComponent(Buffer.from(`opencode:${key}`).toString('base64'));
const open = (path) => page.goto(`${base}${path}?auth_token=${token}`);
const text = (words) => page.getByText(words, { exact: false }).first().waitFor();
async function prompt(words) {
  const field = page.locator('[contenteditable=true]').first();
  await field.click();
  await field.pressSequentially(words);
  await page.keyboard.press('Enter');
}

async function walk() {
  await open('/');
  await text('Nothing here yet');
  seen('opened');

  await page.getByText('Add project').first().click();
  const search = page.getByPlaceholder('Search folders');
  await search.fill(place.split('/').at(-1));
  await page.locator(`[data-directory-path="${place}"], [role=dialog] [role=option]`).first().click();
  await page.getByRole('dialog').waitFor({ state: 'hidden' });
  seen('project');

  await page.getByRole('button', { name: 'New session' }).first().click();
  await prompt('tell the story');
  await text('It begins well');
  seen('waits streaming');
  await input.next();
  await text('and so it ends.');
  seen('answered');

  await prompt('run `echo from-the-$((40 + 2))`');
  await text('shell: from-the-42');
  await page.getByRole('button', { name: /Shell/ }).last().click();
  await text('from-the-42');
  seen('tool');
  await prompt('create made.txt containing bonjour');
  await text('made.txt');
  await page.getByRole('button', { name: /Write/ }).last().waitFor();
  seen('file');

  await page.locator('button', { hasText: 'simulated' }).last().click();
  await page.getByPlaceholder('Search models').waitFor();
  await text('Manage models');
  await page.keyboard.press('Escape');
  seen('models');

  await page.getByLabel('More options').first().click();
  await page.getByRole('menuitem', { name: 'Rename' }).click();
  const title = page.locator('input[data-slot=session-title-child]');
  await title.fill('a name of my own');
  await title.press('Enter');
  await title.waitFor({ state: 'hidden' });
  await text('a name of my own');
  seen('waits renamed');
  await input.next();

  const session = new URL(page.url()).pathname;
  await open(session);
  await text('and so it ends.');
  await text('a name of my own');
  seen('reloaded');

  await page.getByLabel('Home').first().click();
  await page.getByText('Projects').first().waitFor();
  await page.locator('main, body').getByText('a name of my own').last().waitFor();
  seen('waits listed');
  await input.next();

  await open(session);
  await text('and so it ends.');
  await page.getByLabel('More options').first().click();
  await page.getByRole('menuitem', { name: 'Delete' }).click();
  await page.getByRole('button', { name: 'Delete session' }).click();
  await page.getByRole('dialog').waitFor({ state: 'hidden' });
  seen('deleted');
}

try {
  await walk();
  seen(JSON.stringify({ refused, errors }));
} catch (error) {
  const screen = await page.innerText('body').catch(() => '');
  console.error(`${error}\nat ${page.url()}\n${screen.slice(0, 3000)}\n${JSON.stringify({ refused, errors })}`);
  if (process.env.WALK_PICTURE) await page.screenshot({ path: process.env.WALK_PICTURE });
  process.exitCode = 1;
}
await browser.close();
process.exit();
