// Watches a session in the console while an answer streams, and says how long the page's tasks and its scripts took.
import { chromium } from 'playwright-core';

const { service, key, session, directory, prompt, browser: program } = JSON.parse(process.argv.at(-1));
const SCRIPT = new Set(['FunctionCall', 'EvaluateScript', 'FireAnimationFrame', 'TimerFire', 'RunMicrotasks', 'EventDispatch', 'v8.callFunction', 'MinorGC', 'MajorGC']);
const CATEGORIES = ['toplevel', 'devtools.timeline', 'disabled-by-default-devtools.timeline', 'v8'];

const browser = await chromium.launch({ executablePath: program, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
const page = await (await browser.newContext({ viewport: { width: 1400, height: 900 } })).newPage();
page.setDefaultTimeout(60_000);
await page.goto(`${service}/login`);
await page.getByLabel('Key', { exact: true }).fill(key);
await page.getByRole('button', { name: 'Sign in', exact: true }).click();
await page.waitForURL((url) => !url.pathname.startsWith('/login'));
// The key is a service's: it logs nobody in, and is forgotten when a page is loaded anew.
await page.evaluate((session) => {
  history.pushState(null, '', `/o/${location.pathname.split('/')[2] ?? '-'}/session/${session}`);
  dispatchEvent(new PopStateEvent('popstate'));
}, session);
await page.getByLabel('Prompt', { exact: true }).waitFor();
await page.waitForTimeout(2_000);

await browser.startTracing(page, { categories: CATEGORIES });
const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
const began = Date.now();
const asked = await fetch(`${service}/session/${session}/message?directory=${encodeURIComponent(directory)}`, {
  method: 'POST',
  headers,
  body: JSON.stringify({ parts: [{ type: 'text', text: prompt }] }),
});
if (!asked.ok) throw new Error(`${asked.status} ${await asked.text()}`);
await asked.text();
const seconds = (Date.now() - began) / 1000;
await page.getByRole('log').getByText('The very end').last().waitFor();
const trace = JSON.parse((await browser.stopTracing()).toString()).traceEvents;
const letters = await page.getByRole('log').evaluate((log) => log.textContent.length);
await browser.close();

// The page's own main thread is the one that drew most.
const mains = trace.filter((event) => event.name === 'thread_name' && event.args.name === 'CrRendererMain');
const of = ({ pid, tid }) => trace.filter((event) => event.pid === pid && event.tid === tid && event.ph === 'X');
const events = mains.map(of).sort((a, b) => b.length - a.length)[0];
const tasks = events.filter((event) => event.name.endsWith('RunTask')).map((task) => task.dur / 1000);

/** Frames begin where the main thread is told to draw; what runs until the next one is of that frame. */
const frames = events.filter((event) => event.name === 'FireAnimationFrame' || event.name.includes('BeginMainFrame')).map((event) => event.ts).sort((a, b) => a - b);
const starts = frames.filter((at, index) => index === 0 || at - frames[index - 1] > 4_000);
const scripts = events.filter((event) => SCRIPT.has(event.name)).sort((a, b) => a.ts - b.ts);
const spent = new Array(starts.length).fill(0);
let end = 0;
let frame = 0;
for (const { ts, dur } of scripts) {
  // A script within another one is counted once.
  const counted = Math.max(0, ts + dur - Math.max(ts, end));
  end = Math.max(end, ts + dur);
  while (frame + 1 < starts.length && starts[frame + 1] <= ts) frame += 1;
  if (starts.length && ts >= starts[0]) spent[frame] += counted / 1000;
}
const sorted = spent.toSorted((a, b) => a - b);
const at = (part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0;
console.log(JSON.stringify({
  seconds,
  letters,
  frames: starts.length,
  script_p50_ms: at(0.5),
  script_p95_ms: at(0.95),
  longest_task_ms: tasks.reduce((longest, task) => Math.max(longest, task), 0),
  long_tasks: tasks.filter((task) => task > 50).length,
  tasks: tasks.length,
}));
