// Opens a page in a headless browser, runs a command once the page says that it listens, and waits until the page shows
// a text: node browser.mjs FILE-URL 'LISTENS' 'SHOWN' COMMAND [ARGUMENTS]. The browser is Chromium, by its debugging port.
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { WebSocket } from 'ws';

const [url, listens, shown, command, ...args] = process.argv.slice(2);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const until = async (what, question) => {
  for (let n = 0; n < 600; n++) {
    const answer = await question();
    if (answer) return answer;
    await pause(100);
  }
  throw new Error(`did not come true: ${what}`);
};
const profile = mkdtempSync(join(tmpdir(), 'browser-'));
const browser = spawn('chromium', [
  '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', `--user-data-dir=${profile}`,
  '--remote-debugging-port=0', url,
], { stdio: 'ignore' });
try {
  const port = await until('the browser starts', () => {
    try { return readFileSync(join(profile, 'DevToolsActivePort'), 'utf8').split('\n')[0]; } catch { return ''; }
  });
  const page = await until('the page is there', async () => {
    const pages = await (await fetch(`http://127.0.0.1:${port}/json`)).json();
    return pages.find((one) => one.type === 'page' && one.url === url);
  });
  const socket = new WebSocket(page.webSocketDebuggerUrl);
  await new Promise((resolve, reject) => { socket.on('open', resolve); socket.on('error', reject); });
  let id = 0;
  const text = () => new Promise((resolve) => {
    const mine = ++id;
    const hear = (data) => {
      const said = JSON.parse(data);
      if (said.id !== mine) return;
      socket.off('message', hear);
      resolve(String(said.result?.result?.value));
    };
    socket.on('message', hear);
    socket.send(JSON.stringify({ id: mine, method: 'Runtime.evaluate', params: { expression: 'document.body?.innerText' } }));
  });
  await until(`the page says ${listens}`, async () => (await text()).includes(listens));
  if (spawnSync(command, args, { stdio: 'inherit' }).status !== 0) throw new Error(`${command} failed`);
  await until(`the page shows ${shown}`, async () => (await text()).includes(shown));
  console.log('ok');
} finally {
  browser.kill('SIGKILL');
  await pause(200);
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
}
process.exit(0);
