/** The page in a browser: what its first load weighs, how soon it can be used, what open pages cost the daemon, how events fare. */
import { setTimeout as sleep } from "node:timers/promises";
import type { DescService } from "@bufbuild/protobuf";
import { createClient, type Client } from "@connectrpc/connect";
import type { Browser, Page } from "playwright-core";
import { AppService } from "../gen/svc/v1/app_pb.ts";
import { EventService } from "../gen/svc/v1/event_pb.ts";
import { SessionService } from "../gen/svc/v1/session_pb.ts";
import { socketTransport, startDaemon, type TestDaemon } from "../test/support/daemon.ts";
import { freePort, writePackage } from "../test/support/packages.ts";
import { addressFor, launchBrowser, openPage } from "../test/web/support/open-page.ts";
import { program, startDaemon as startBenchDaemon } from "./support/daemon.ts";
import { cpuUs } from "./support/load.ts";
import { fillStore } from "./support/many-apps.ts";
import type { Bench, Result } from "./support/result.ts";
import { median, percentile } from "./support/statistics.ts";
import { join } from "node:path";

const rounds = 7;
/** A phone's, or an old laptop's. */
const slowedBy = 4;
const openPages = 20;
const settleMs = 5_000;
const openMs = 30_000;
const apps = 1_000;
/** An hour of one a second. */
const changes = 3_600;
const changedAtOnce = 4;

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
        ...(await measureEvents(browser)),
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
  // A user has twenty sessions at most.
  await daemon.client(SessionService).endSessions({});
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

/** Changes of many apps, one after the other: how soon a follower hears of each, and what they leave in a tab. */
async function measureEvents(browser: Browser): Promise<Result[]> {
  await using daemon = await startBenchDaemon();
  await fillStore(daemon, apps);
  await daemon.start();
  const transport = socketTransport(daemon.socket, "connect");
  const client = <S extends DescService>(service: S): Client<S> => createClient(service, transport);
  const { page } = await openPage(browser);
  await page.goto(await addressFor({ client }));
  await page.getByText("Live").waitFor();
  await page.evaluate("location.hash = '#/apps'");
  await page.getByText(`${apps} apps`).waitFor();
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
  const p99 = percentile(waits, 0.99);
  return [
    {
      what: `a change of one of ${apps} apps, from its call to whoever follows events, p99`,
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

/** What is in use of the tab's heap, without what could go. */
async function heapBytes(page: Page): Promise<number> {
  const session = await page.context().newCDPSession(page);
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  await session.detach();
  return usedSize;
}
