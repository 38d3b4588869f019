/**
 * The page in a browser: the size of its first load, the time until it is usable, the cost of open pages for the
 * daemon, and the latency of events.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { DescService } from "@bufbuild/protobuf";
import { createClient, type Client } from "@connectrpc/connect";
import type { Browser, Page } from "playwright-core";
import { AppService } from "../gen/svc/v1/app_pb.ts";
import { EventService } from "../gen/svc/v1/event_pb.ts";
import { SessionService } from "../gen/svc/v1/session_pb.ts";
import { socketTransport, startDaemon, type TestDaemon } from "../test/support/daemon.ts";
import { freePort, writePackage } from "../test/support/packages.ts";
import { launchBrowser } from "../test/support/launch-browser.ts";
import { addressFor, openPage, visit } from "../test/web/support/open-page.ts";
import { program, startDaemon as startBenchDaemon } from "./support/daemon.ts";
import { wholeCpuMs } from "./support/load.ts";
import { fillStore } from "./support/many-apps.ts";
import type { Bench, Result } from "./support/result.ts";
import { median, percentile } from "./support/statistics.ts";
import { join } from "node:path";

const rounds = 7;
/** A phone's, or an old laptop's. */
const slowedBy = 4;
const openPages = 20;
const settleMs = 5_000;
const idleMs = 15_000;
const openMs = 30_000;
const apps = 1_000;
const logLines = 10_000;
/** An hour with one event per second. */
const changes = 3_600;
const changedAtOnce = 4;
/** A frame of this duration is visible as a pause. */
const pauseMs = 100;

export const bench: Bench = {
  name: "web",
  async run() {
    await using daemon = await startDaemon({ main: program });
    const dir = join(daemon.dir, "web");
    const prints = `for (let line = 1; line <= ${logLines}; line++) console.log("line " + line); setInterval(() => {}, 1e6);`;
    await writePackage(dir, await freePort(), { files: { "server.mjs": prints } });
    await daemon.client(AppService).installApp({ spec: dir });
    await daemon.client(AppService).startApp({ id: "web" });
    const browser = await launchBrowser();
    try {
      return [
        ...(await measureFirstLoad(daemon, browser)),
        await measureStart(daemon, browser),
        await measureLog(daemon, browser),
        await measureOpenPages(daemon, browser),
        ...(await measureEvents(browser)),
      ];
    } finally {
      await browser.close();
    }
  },
};

/**
 * All bytes that are transferred for the page itself, including headers, until the overview and its charts are shown.
 */
async function measureFirstLoad(daemon: TestDaemon, browser: Browser): Promise<Result[]> {
  const { page } = await openPage(browser);
  const session = await page.context().newCDPSession(page);
  await session.send("Network.enable");
  const paths = new Map<string, string>();
  let [atOnce, whole] = [0, 0];
  const named = await namedByPage(daemon);
  session.on("Network.responseReceived", ({ requestId, response }) => {
    paths.set(requestId, new URL(response.url).pathname);
  });
  session.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => {
    const path = paths.get(requestId) ?? "";
    if (path !== "/" && !path.startsWith("/web/")) return;
    whole += encodedDataLength;
    if (named.has(path)) atOnce += encodedDataLength;
  });
  await visit(page, await addressFor(daemon));
  await page.getByText("Live").waitFor();
  await page.locator(".plot canvas").nth(3).waitFor();
  await sleep(settleMs);
  await page.context().close();
  const row = (what: string, bytes: number): Result => ({
    ...{ what, measured: `${(bytes / 1024).toFixed(1)} KiB`, yardstick: "120 KiB" },
    ...{ value: bytes / (120 * 1024), goal: 1, unit: "×", runs: 1 },
  });
  return [
    row("first load of the page, Brotli, until it can be used", atOnce),
    row("the same with what the overview loads then", whole),
  ];
}

/** The files that the page loads first. */
async function namedByPage(daemon: TestDaemon): Promise<ReadonlySet<string>> {
  const html = await (await fetch(`http://127.0.0.1:${daemon.port}`)).text();
  return new Set(["/", ...[...html.matchAll(/"(\/web\/[\w.-]+)"/g)].map(([, path = ""]) => path)]);
}

/**
 * From opening the address, including the exchange of its code for a token, until the page shows live data and is idle:
 * then a click has an immediate effect. The browser's cache is empty.
 */
async function measureStart(daemon: TestDaemon, browser: Browser): Promise<Result> {
  const times: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const { page } = await openPage(browser);
    const session = await page.context().newCDPSession(page);
    await session.send("Emulation.setCPUThrottlingRate", { rate: slowedBy });
    await page.addInitScript({
      content: `globalThis.usable = new Promise((resolve) => {
        new MutationObserver((_, observer) => {
          if (document.querySelector(".connection.live") === null) return;
          observer.disconnect();
          requestIdleCallback(() => resolve(performance.now()));
        }).observe(document, { childList: true, subtree: true, attributes: true });
      });`,
    });
    await visit(page, await addressFor(daemon));
    times.push(Number(await page.evaluate("usable")));
    await page.context().close();
  }
  // A user has twenty sessions at most.
  await daemon.client(SessionService).endSessions({});
  return {
    what: `the page is live and can be used, processor slowed ${slowedBy} times`,
    measured: `${median(times).toFixed(0)} ms`,
    yardstick: "1 s",
    value: median(times),
    goal: 1_000,
    unit: "ms",
    runs: rounds,
  };
}

async function measureLog(daemon: TestDaemon, browser: Browser): Promise<Result> {
  const { page } = await openPage(browser);
  await visit(page, await addressFor(daemon));
  await page.getByText("Live").waitFor();
  await page.evaluate("location.hash = '#/apps/web'");
  await page.getByText(`line ${logLines}`, { exact: true }).waitFor({ state: "attached" });
  const result = await measureScrolling(page, `a log of ${logLines} lines`, "document.querySelector('.log')");
  await page.context().close();
  return result;
}

/** @param box the scrolling element, an expression of the page */
async function measureScrolling(page: Page, of: string, box: string): Promise<Result> {
  const [longest, frames] = await page.evaluate<[number, number]>(`new Promise((resolve) => {
    const box = ${box};
    box.scrollTop = 0;
    let [before, longest, frames] = [undefined, 0, 0];
    const step = (now) => {
      if (before !== undefined) longest = Math.max(longest, now - before);
      before = now;
      frames += 1;
      const at = box.scrollTop;
      box.scrollTop = at + box.clientHeight * 0.8;
      if (box.scrollTop > at && frames < 2000) requestAnimationFrame(step);
      else resolve([longest, frames]);
    };
    requestAnimationFrame(step);
  })`);
  return {
    what: `the longest frame while one scrolls through ${of}`,
    measured: `${longest.toFixed(0)} ms of ${frames} frames`,
    yardstick: `${pauseMs} ms`,
    value: longest,
    goal: pauseMs,
    unit: "ms",
    runs: frames,
  };
}

/** Half of them show the overview, half an app with its log. */
async function measureOpenPages(daemon: TestDaemon, browser: Browser): Promise<Result> {
  const shareOver = async (timeMs: number): Promise<number> => {
    const before = await wholeCpuMs(daemon.pid);
    await sleep(timeMs);
    return (((await wholeCpuMs(daemon.pid)) - before) / timeMs) * 100;
  };
  await daemon.client(SessionService).endSessions({});
  await sleep(settleMs);
  const idle = await shareOver(idleMs);
  for (let count = 0; count < openPages; count++) {
    const { page } = await openPage(browser);
    await visit(page, await addressFor(daemon));
    await page.getByText("Live").waitFor();
    if (count % 2 === 1) await page.evaluate("location.hash = '#/apps/web'");
    // A hidden page would request nothing.
    if ((await page.evaluate("document.hidden")) !== false) throw new Error("a page is hidden");
  }
  await sleep(settleMs);
  const share = await shareOver(openMs);
  return {
    what: `the daemon's processor time with ${openPages} pages open`,
    measured: `${share.toFixed(2)} % of one, ${idle.toFixed(2)} % without them`,
    yardstick: "one processor",
    value: share,
    goal: 3,
    unit: "%",
    runs: 1,
  };
}

/** Changes of many apps, one after the other: the latency for a follower, and the memory of a tab. */
async function measureEvents(browser: Browser): Promise<Result[]> {
  await using daemon = await startBenchDaemon();
  await fillStore(daemon, apps);
  await daemon.start();
  const transport = socketTransport(daemon.socket, "connect");
  const client = <S extends DescService>(service: S): Client<S> => createClient(service, transport);
  const { page } = await openPage(browser);
  await visit(page, await addressFor({ client }));
  await page.getByText("Live").waitFor();
  await page.evaluate("location.hash = '#/apps'");
  await page.getByText(`${apps} apps`).waitFor();
  const scrolling = await measureScrolling(page, `${apps} apps`, "document.scrollingElement");
  await page.evaluate("scrollTo(0, 0)");
  const heapBefore = await heapBytes(page);

  const askedAt = new Map<string, number>();
  const waits: number[] = [];
  const over = new AbortController();
  const begun = Promise.withResolvers<undefined>();
  const follow = async (): Promise<void> => {
    const kinds = ["app.changed"];
    for await (const { kind, appId } of client(EventService).streamEvents(
      { kinds },
      { signal: over.signal },
    )) {
      if (kind === "begin") begun.resolve(undefined);
      if (kind === "reset") throw new Error("events were left out");
      const since = askedAt.get(appId);
      if (since !== undefined) waits.push(performance.now() - since);
      askedAt.delete(appId);
    }
  };
  const following = follow().catch((error: unknown) => {
    if (!over.signal.aborted) throw error;
  });
  await begun.promise;
  let next = 0;
  const change = async (): Promise<void> => {
    while (next < changes) {
      const number = (next++ % apps) + 1;
      const id = number === 1 ? "idle" : `idle-${number}`;
      askedAt.set(id, performance.now());
      await client(AppService).updateAppSettings({ id, values: {} });
    }
  };
  await Promise.all(Array.from({ length: changedAtOnce }, change));
  await sleep(settleMs);
  over.abort();
  await following;
  const heap = await heapBytes(page);
  if (waits.length < changes) throw new Error(`${changes - waits.length} changes were never received`);
  const p99 = percentile(waits, 0.99);
  return [
    scrolling,
    {
      what: `a change of one of ${apps} apps, from its call to a follower of events, p99`,
      measured: `${p99.toFixed(0)} ms`,
      yardstick: "200 ms",
      value: p99,
      goal: 200,
      unit: "ms",
      runs: waits.length,
    },
    {
      what: `memory of a tab with ${apps} apps after ${changes} changes`,
      measured: `${(heap / 2 ** 20).toFixed(1)} MiB, ${(heapBefore / 2 ** 20).toFixed(1)} before`,
      yardstick: "before",
      value: heap / heapBefore,
      goal: 1.5,
      unit: "×",
      runs: 1,
    },
  ];
}

/** The used heap of the tab after a garbage collection. */
async function heapBytes(page: Page): Promise<number> {
  const session = await page.context().newCDPSession(page);
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  await session.detach();
  return usedSize;
}
