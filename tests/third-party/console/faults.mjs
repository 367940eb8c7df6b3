// Two pages at two gateways of a cluster. They outlive a gateway and the workers, show nothing more while their gateways
// cannot ask Postgres whether a login still counts, and go dark when their logins end. Each line of the output is a step that
// was seen; a line of input lets it go on after `waits`.
import { goOnAfter, launch, signIn, tab, tellScreens, textsOf } from './browser.mjs';

const { service, other, key, browser: program } = JSON.parse(process.argv[2]);
const faults = [];
const browser = await launch(program);

const until = (page, words) => page.getByRole('log').getByText(words).last().waitFor();

async function walk() {
  const page = await tab(browser, service, faults);
  await signIn(page, service, key);
  await page.goto(`${service}/o/-/new`);
  await page.getByLabel('Prompt', { exact: true }).fill('recite');
  await page.keyboard.press('Enter');
  await until(page, 'Line one');
  const session = page.url().split('/').at(-1);
  const watching = await tab(browser, other, faults);
  await signIn(watching, other, key);
  await watching.goto(`${other}${new URL(page.url()).pathname}`);
  await until(watching, 'Line one');
  await goOnAfter('waits killed');

  for (const each of [page, watching]) {
    await until(each, 'the last line.');
    await each.getByRole('button', { name: 'Stop', exact: true }).waitFor({ state: 'detached' });
    await each.getByText('The connection is lost').waitFor({ state: 'detached' });
  }

  await page.getByLabel('Prompt', { exact: true }).fill('tell the story');
  await page.keyboard.press('Enter');
  for (const each of [page, watching]) await until(each, 'It begins well');
  await goOnAfter('waits cut');
  for (const each of [page, watching]) {
    if (await each.getByText('so it ends').count()) faults.push('a gateway that is cut off shows more');
  }
  await goOnAfter('waits back');
  for (const each of [page, watching]) {
    await until(each, 'so it ends');
    await each.getByRole('button', { name: 'Stop', exact: true }).waitFor({ state: 'detached' });
  }
  const texts = [await textsOf(page), await textsOf(watching)];
  await goOnAfter('waits ended');
  const began = Date.now();
  const dark = await Promise.all(
    [page, watching].map(async (each) => {
      await each.getByRole('heading', { name: 'Sign in to OpenCode Cloud' }).waitFor();
      await each.getByRole('log').waitFor({ state: 'detached' });
      return Date.now() - began;
    }),
  );
  console.log(JSON.stringify({ session, texts, dark, faults }));
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
