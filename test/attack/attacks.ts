/** Attacks on a listener's availability. */
import { connect, type Socket } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { request } from "node:http";
import type { TestDaemon } from "../support/daemon.ts";
import { openAndReset, sessionStart } from "../support/http2-frames.ts";
import { addresses } from "./probe.ts";

const ping = Buffer.from("0000080600000000000000000000000000", "hex");

interface SlowClient {
  readonly first: (token: string) => Buffer;
  readonly drip: Buffer;
}

const head = (token: string): string =>
  `POST /svc.v1.AppService/StartApp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\n`;

export const slowClients: Readonly<Record<string, SlowClient>> = {
  "HTTP/1.1 headers that drip": {
    first: (token) => Buffer.from(head(token)),
    drip: Buffer.from("X-A: b\r\n"),
  },
  "HTTP/1.1 bodies that drip": {
    first: (token) =>
      Buffer.from(`${head(token)}Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n{`),
    drip: Buffer.from(" "),
  },
  "HTTP/2 sessions that say nothing": {
    first: () => sessionStart,
    drip: Buffer.alloc(0),
  },
  "HTTP/2 sessions that only ping": { first: () => sessionStart, drip: ping },
};

/** How often a slow client sends a few bytes. */
const dripMs = 1_000;
const openedAtOnce = 50;

/**
 * Holds `count` slow connections until the last is closed; resolves with the number still open `mostMs` after the last
 * was opened.
 */
export async function holdSlowClients(
  { port, token }: Pick<TestDaemon, "port" | "token">,
  { first, drip }: SlowClient,
  { count, mostMs }: { count: number; mostMs: number },
): Promise<number> {
  const sockets = new Set<Socket>();
  for (let opened = 0; opened < count; opened++) {
    const localAddress = addresses.attackers[opened % addresses.attackers.length];
    const socket = connect({ host: "127.0.0.1", port, ...(localAddress && { localAddress }) });
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => sockets.delete(socket));
    socket.resume().write(first(token));
    if (opened % openedAtOnce === 0) await wait(10);
  }
  const timer = setInterval(() => {
    if (drip.length > 0) for (const socket of sockets) socket.write(drip);
  }, dripMs);
  const deadlineMs = performance.now() + mostMs;
  while (sockets.size > 0 && performance.now() < deadlineMs) await wait(100);
  clearInterval(timer);
  const left = sockets.size;
  for (const socket of sockets) socket.destroy();
  return left;
}

/** The first bytes of a flood's session, and its number of further streams after the response. */
const floods = [
  { first: 2_000, later: 0 },
  { first: 0, later: 2_000 },
  { first: 200, later: 200 },
] as const;
const openedAndReset = Array.from({ length: 2_000 }, (_unused, n) => openAndReset(n));

/**
 * Opens and resets `count` streams on as many sessions as needed; resolves with the number of sessions, and how many
 * the server closed for it.
 */
export async function floodWithResets(
  { port }: TestDaemon,
  count: number,
): Promise<{ sessions: number; ended: number }> {
  let sessions = 0;
  let ended = 0;
  for (let sent = 0; sent < count; sessions++) {
    const { first, later } = floods[sessions % floods.length]!;
    const socket = connect({ host: "127.0.0.1", port, localAddress: addresses.attackers[0] });
    const closed = new Promise<boolean>((resolve) => {
      socket.once("close", () => resolve(true));
      setTimeout(resolve, 10_000, false).unref();
    });
    socket.on("error", () => undefined);
    socket.once("data", () => socket.write(Buffer.concat(openedAndReset.slice(first, first + later))));
    socket.write(Buffer.concat([sessionStart, ...openedAndReset.slice(0, first)]));
    if (await closed) ended++;
    socket.destroy();
    sent += first + later;
  }
  return { sessions, ended };
}

const mib = 1024 * 1024;

/** Sends zeros, compressed to a thousandth, as one message; resolves with the error code. */
export function sendBomb({ port, token }: TestDaemon, sizeBytes: number): Promise<string> {
  // A file of several gzip members unpacks to all of them.
  const member = gzipSync(Buffer.alloc(16 * mib));
  const bomb = Buffer.concat(Array.from({ length: sizeBytes / (16 * mib) }, () => member));
  return new Promise((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      "content-encoding": "gzip",
    };
    const path = "/svc.v1.AppService/StartApp";
    request({ host: "127.0.0.1", port, method: "POST", path, headers, agent: false }, (response) => {
      let text = "";
      response.on("data", (chunk: Buffer) => (text += chunk.toString()));
      response.on("end", () => resolve(/"code":"([a-z_]+)"/.exec(text)?.[1] ?? text));
    })
      .on("error", reject)
      .end(bomb);
  });
}
