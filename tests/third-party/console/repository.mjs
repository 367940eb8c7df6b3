// A repository comes in by the console, and its work goes home: a server that refuses, a fetch that takes its time, the
// command and the patch to copy. Each line of the output is a step that was seen; a line of input lets it go on after `waits`.
import { axe, faultsOf } from './accessible.mjs';
import { goOnAfter, launch, signIn, tab, tellScreens } from './browser.mjs';

const { service, key, browser: program, address } = JSON.parse(process.argv[2]);
const faults = [];
const browser = await launch(program);

async function walk() {
  const page = await tab(browser, service, faults);
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin: service });
  await page.addInitScript(axe);
  await signIn(page, service, key);
  await page.goto(`${service}/o/-/new`);
  await page.getByRole('radio', { name: /Git repository/ }).click();
  await page.getByLabel('Address').fill(address);
  await page.getByLabel('Branch, tag or commit').fill('main');
  await page.getByLabel('Prompt', { exact: true }).fill('create made.txt containing hello');
  await page.keyboard.press('Enter');

  const note = page.getByRole('region', { name: 'Repository' });
  await note.getByRole('button', { name: 'Fetch again' }).waitFor();
  const refused = await note.innerText();
  const twice = page.getByRole('button', { name: 'Try again' });
  if (await twice.count()) faults.push('the refusal is told twice');
  faults.push(...(await faultsOf(page, 'a repository that cannot be fetched')));
  await goOnAfter('waits refused');

  await note.getByRole('button', { name: 'Fetch again' }).click();
  await note.getByRole('status').getByText('Fetching').waitFor();
  if (await twice.count()) faults.push('an old refusal is told while it is fetched');
  const step = await note.getByRole('progressbar').getAttribute('aria-valuenow');
  faults.push(...(await faultsOf(page, 'a repository that is fetched')));
  await goOnAfter('waits fetching');

  await page.getByRole('log').getByText('Done, says the simulated model').waitFor();
  await page.getByRole('button', { name: 'Stop', exact: true }).waitFor({ state: 'detached' });
  await note.getByRole('progressbar').waitFor({ state: 'detached' });
  const filled = await note.innerText();
  const details = page.getByRole('complementary', { name: 'Details' });
  await details.getByRole('button', { name: /made\.txt/ }).click();
  await details.getByText('hello').waitFor();
  faults.push(...(await faultsOf(page, 'work that goes home')));
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  await details.getByRole('button', { name: /Copy: opencode-cloud session pull/ }).click();
  await details.getByText('Copied', { exact: true }).first().waitFor({ state: 'attached' });
  const command = await copied();
  await details.getByRole('button', { name: 'Copy as a patch' }).click();
  await page.getByText('The patch is copied').waitFor();
  const patch = await copied();
  console.log(JSON.stringify({ refused, step, filled, command, patch, faults }));
}

try {
  await walk();
} catch (error) {
  await tellScreens(browser);
  console.error(error, faults);
  process.exitCode = 1;
} finally {
  await browser.close();
}
process.exit();
