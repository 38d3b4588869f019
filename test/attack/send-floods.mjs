/**
 * Floods of one user (T 57), a program so that another user can be it: sends as fast as the daemon takes it, opens anew what
 * is closed, says `sending` and ends with its standard input.
 */
import { readFileSync, unlinkSync } from "node:fs";
import { connect, createServer } from "node:net";

/** @import { Socket } from "node:net" */
/** @typedef {{ path: string, kinds: string[], scale: number, appId: string, spec: string, runDir: string }} Orders */

/** @type {Orders} */
const { path, kinds, scale, appId, spec, runDir } = JSON.parse(process.argv[2] ?? "");

const reopenMs = 20;
/** @param {number} count what it is at full scale */
const scaled = (count) => Math.max(1, Math.round(count * scale));

/**
 * @param {number} count
 * @param {(socket: Socket) => void} onConnect
 */
function hold(count, onConnect) {
  for (let n = 0; n < count; n++) open(onConnect);
}

/** @param {(socket: Socket) => void} onConnect */
function open(onConnect) {
  const socket = connect(path, () => onConnect(socket));
  socket.on("error", () => undefined).resume();
  socket.once("close", () => setTimeout(open, reopenMs, onConnect));
}

/**
 * The same bytes again and again, as long as there is room for them.
 * @param {Buffer} bytes
 */
function repeat(bytes) {
  return (/** @type {Socket} */ socket) => {
    const send = () => {
      while (socket.writable && socket.write(bytes));
    };
    socket.on("drain", send);
    send();
  };
}

/**
 * @param {string} target
 * @param {string} body
 */
function post(target, body) {
  const head = `POST ${target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n`;
  return Buffer.from(`${head}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
}

/** Takes the place of the app's supervisor, and says long lines to all who come. */
function replaceSupervisor() {
  const socketFile = `${runDir}/supervisor.sock`;
  const state = JSON.parse(readFileSync(`${runDir}/state.json`, "utf8"));
  const { appId: id, runId, bootId, supervisor } = state;
  const hello = { type: "hello", protocol: { min: 1, max: 1 }, svcVersion: "", appId: id, runId, bootId };
  const junk = `${"[],".repeat(600_000)}[]`;
  const long = `{"type":"state","state":${JSON.stringify({ ...state, phase: "RUNNING" })},"junk":[${junk}]}\n`;
  unlinkSync(socketFile);
  createServer((socket) => {
    socket.on("error", () => undefined).resume();
    socket.write(`${JSON.stringify({ ...hello, ...supervisor })}\n`);
    repeat(Buffer.from(long))(socket);
  }).listen(socketFile, () => process.kill(supervisor.pid, "SIGKILL"));
}

const install = (/** @type {unknown} */ settings) => JSON.stringify({ spec, settings });
const list = Buffer.from("GET /v1/apps HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(50));
const mib = 1024 * 1024;

const http2Start = Buffer.concat([
  Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  Buffer.from("000000040000000000" + "0000040800000000007fff0000", "hex"),
]);
// GET and http by HPACK's static table, path and authority as literals.
const listFields = Buffer.from("\x82\x86\x04\x08/v1/apps\x01\x09localhost", "latin1");

/** A hundred requests on one session of HTTP/2, and one more for each that may have been answered. */
function streams(/** @type {Socket} */ socket) {
  let next = 1;
  const ask = (/** @type {number} */ count) => {
    const frames = [];
    for (let n = 0; n < count; n++, next += 2) {
      const head = Buffer.alloc(9);
      head.writeUIntBE(listFields.length, 0, 3);
      head.writeUInt8(1, 3);
      head.writeUInt8(5, 4);
      head.writeUInt32BE(next, 5);
      frames.push(head, listFields);
    }
    if (socket.writable) socket.write(Buffer.concat(frames));
  };
  socket.write(http2Start);
  ask(100);
  // An answer is a head and a body.
  socket.on("data", (/** @type {Buffer} */ data) => ask(Math.min(100, Math.ceil(data.length / 1_000))));
}

const status = Buffer.from("GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");

const upgrade = Buffer.from(
  "GET /v1/apps/x/console?session=shell&token=unknown HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n" +
    "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
);
const history = Buffer.from(
  "GET /v1/metrics/history?limit=1000&step=86400 HTTP/1.1\r\nHost: localhost\r\n\r\n",
);

/** @type {Record<string, () => void>} */
const floods = {
  // Every other one is gone before it is answered.
  consoles: () => {
    let count = 0;
    hold(scaled(500), (socket) => void socket.write(upgrade, () => ++count % 2 === 0 && socket.destroy()));
  },
  histories: () => hold(scaled(200), repeat(history)),
  connections: () => hold(scaled(1_000), (socket) => void socket.write(status)),
  "streams of HTTP/2": () => hold(scaled(1_024), streams),
  lists: () => hold(scaled(100), repeat(list)),
  "large bodies": () => {
    const body = post("/svc.v1.AppService/InstallApp", install({ a: "x".repeat(16 * mib - 100) }));
    hold(scaled(150), repeat(body));
  },
  "deep bodies": () => {
    const body = post("/svc.v1.AppService/InstallApp", install({ a: Array(340_000).fill([]) }));
    hold(scaled(150), repeat(body));
  },
  installs: () => hold(scaled(16), repeat(post("/v1/apps", install({ slow: `${"a".repeat(4_000)}!` })))),
  "supervisor's lines": replaceSupervisor,
  followers: () => {
    const follow = `GET /v1/apps/${appId}/logs?follow=true HTTP/1.1\r\nHost: localhost\r\n\r\n`;
    hold(scaled(900), (socket) => void socket.write(follow));
  },
};

for (const kind of kinds) floods[kind]?.();
console.log("sending");
process.stdin.resume().on("end", () => process.exit());
