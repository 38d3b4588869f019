/** The page in a browser: what its first load weighs, how soon it can be used, what open pages cost the daemon. */
import { setTimeout as sleep } from "node:timers/promises";
import type { Browser } from "playwright-core";
import { AppService } from "../gen/svc/v1/app_pb.ts";
import { startDaemon, type TestDaemon } from "../test/support/daemon.ts";
import { freePort, writePackage } from "../test/support/packages.ts";
import { addressFor, launchBrowser, openPage } from "../test/web/support/open-page.ts";
import { program } from "./support/daemon.ts";
import { cpuUs } from "./support/load.ts";
import type { Bench, Result } from "./support/result.ts";
import { median } from "./support/statistics.ts";
import { join } from "node:path";

const rounds = 7;
/** A phone's, or an old laptop's. */
const slowedBy = 4;
const openPages = 20;
const settleMs = 5_000;
const openMs = 30_000;

export const bench: Bench = {
  name: "web",
  async run() {
    await using daemon = await startDaemon({ main: program });
    const dir = join(daemon.dir, "web");
    await writePackage(dir, await freePort());
    await daemon.client(AppService).installApp({ spec: dir });
    const browser = await launchBrowser();
    try {
      return [
        await measureFirstLoad(daemon),
        await measureStart(daemon, browser),
        await measureOpenPages(daemon, browser),
      ];
    } finally {
      await browser.close();
    }
  },
};

async function measureFirstLoad(daemon: TestDaemon): Promise<Result> {
  const base = `http://127.0.0.1:${daemon.port}`;
  const html = await (await fetch(base)).text();
  const paths = ["/", ...[...html.matchAll(/"(\/web\/[\w.-]+)"/g)].map(([, path = ""]) => path)];
  let bytes = 0;
  for (const path of paths) {
    const answer = await fetch(base + path, { method: "HEAD", headers: { "accept-encoding": "br" } });
    bytes += Number(answer.headers.get("content-length"));
  }
  return {
    what: "first load of the page, Brotli",
    measured: `${(bytes / 1024).toFixed(1)} KiB`,
    yardstick: "120 KiB",
    value: bytes / (120 * 1024),
    goal: 1,
    unit: "×",
    runs: 1,
  };
}

/** From the address on, its code traded for a token, until the page can be used: nothing is in the browser's cache. */
async function measureStart(daemon: TestDaemon, browser: Browser): Promise<Result> {
  const times: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const { page } = await openPage(browser);
    const session = await page.context().newCDPSession(page);
    await session.send("Emulation.setCPUThrottlingRate", { rate: slowedBy });
    await page.addInitScript({
      content: `new MutationObserver((_, observer) => {
        if (document.querySelector("nav a") === null) return;
        observer.disconnect();
        globalThis.usableMs = performance.now();
      }).observe(document, { childList: true, subtree: true });`,
    });
    await page.goto(await addressFor(daemon));
    await page.getByText("Live").waitFor();
    times.push(Number(await page.evaluate("usableMs")));
    await page.context().close();
  }
  return {
    what: `the page can be used, processor slowed ${slowedBy} times`,
    measured: `${median(times).toFixed(0)} ms`,
    yardstick: "1 s",
    value: median(times),
    goal: 1_000,
    unit: "ms",
    runs: rounds,
  };
}

async function measureOpenPages(daemon: TestDaemon, browser: Browser): Promise<Result> {
  for (let count = 0; count < openPages; count++) {
    const { page } = await openPage(browser);
    await page.goto(await addressFor(daemon));
    await page.getByText("Live").waitFor();
  }
  await sleep(settleMs);
  const before = await cpuUs(daemon.pid);
  await sleep(openMs);
  const share = ((await cpuUs(daemon.pid)) - before) / (openMs * 10);
  return {
    what: `the daemon's processor time with ${openPages} pages open`,
    measured: `${share.toFixed(2)} % of one`,
    yardstick: "one processor",
    value: share,
    goal: 3,
    unit: "%",
    runs: 1,
  };
}
