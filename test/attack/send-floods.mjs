/**
 * Floods of one user, in a program so that it can run as another user: sends as fast as the daemon reads, reopens what
 * is closed, prints `sending`, and exits when its standard input closes.
 */
import { readFileSync, unlinkSync } from "node:fs";
import { connect, createServer } from "node:net";

/** @import { Socket } from "node:net" */
/** @typedef {{ path: string, kinds: string[], scale: number, appId: string, spec: string, runDir: string }} Orders */

/** @type {Orders} */
const { path, kinds, scale, appId, spec, runDir } = JSON.parse(process.argv[2] ?? "");

const reopenMs = 20;
/** @param {number} count the number at full scale */
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

/** Sends the same bytes repeatedly, as long as the buffer has space. @param {Buffer} bytes */
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

/** Replaces the app's supervisor, and sends long lines to every client. */
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

/** A hundred requests on one HTTP/2 session, and one more for each response. */
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
  // A response is a head and a body.
  socket.on("data", (/** @type {Buffer} */ data) => ask(Math.min(100, Math.ceil(data.length / 1_000))));
}

/**
 * @param {number} type
 * @param {number} streamId
 * @param {string} payload
 */
function frame(type, streamId, payload) {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(type === 1 ? 4 : 0, 4);
  head.writeUInt32BE(streamId, 5);
  return Buffer.concat([head, Buffer.from(payload, "latin1")]);
}

/** @param {Buffer} bytes */
const mebibyteOf = (bytes) => Buffer.concat(Array(Math.ceil(mib / bytes.length)).fill(bytes));

const attach = "/svc.v1.AppService/AttachConsole";
const attachFields = `\x83\x86\x04${String.fromCharCode(attach.length)}${attach}\x01\x09localhost`;
const grpcField = "\x00\x0ccontent-type\x10application/grpc";
/** A call that stays open, so that its session does. */
const attachFrame = frame(1, 1, `${attachFields}${grpcField}`);

/** @param {Buffer} bytes that a session repeats for ever */
const onSession = (bytes) => (/** @type {Socket} */ socket) => {
  socket.write(Buffer.concat([http2Start, attachFrame]));
  repeat(bytes)(socket);
};

/** The first message of a console that shows a log: fields 1 and 2 of `ConsoleInput`. */
const logsMessage = `\x0a${String.fromCharCode(appId.length)}${appId}\x12\x04logs`;
const logsFrame = frame(0, 1, `\0\0\0\0${String.fromCharCode(logsMessage.length)}${logsMessage}`);
/** Messages without fields. */
const emptyMessages = frame(0, 1, "\0".repeat(16_000));

/** @param {Socket} socket of a console that is open */
function openConsole(socket) {
  const body = '{"session":"logs"}';
  const head = `POST /v1/apps/${appId}/console-token HTTP/1.1\r\nHost: localhost\r\n`;
  socket.write(`${head}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  socket.once("data", (/** @type {Buffer} */ answer) => {
    const [, token = ""] = /"token":"([^"]+)"/.exec(answer.toString("latin1")) ?? [];
    socket.once("data", () => repeat(mebibyteOf(Buffer.from("8a8000000000", "hex")))(socket));
    const console = upgrade.toString("latin1").replace("/apps/x/", `/apps/${appId}/`);
    socket.write(console.replace("session=shell&token=unknown", `session=logs&token=${token}`));
  });
}

const status = Buffer.from("GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");

const upgrade = Buffer.from(
  "GET /v1/apps/x/console?session=shell&token=unknown HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n" +
    "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
);
/** Resolves when the first console is open. */
const opened = Promise.withResolvers();

/** Opens a console of the app, then says the same short thing over and over. */
function sayToConsole(/** @type {Socket} */ socket) {
  const message = Buffer.from('{"type":"resize","cols":80,"rows":24}');
  // A last text frame, masked with zeros.
  const frame = Buffer.concat([Buffer.of(0x81, 0x80 | message.length, 0, 0, 0, 0), message]);
  const flood = repeat(Buffer.concat(Array(1_000).fill(frame)));
  let answer = "";
  let isOpen = false;
  socket.on("data", (/** @type {Buffer} */ data) => {
    if (isOpen) return;
    answer += data.toString("latin1");
    const token = /"token":"([^"]+)"/.exec(answer)?.[1];
    if (answer.startsWith("HTTP/1.1 101")) {
      isOpen = true;
      flood(socket);
      opened.resolve(undefined);
    } else if (token !== undefined) {
      answer = "";
      const target = `/v1/apps/${appId}/console?session=shell&token=${token}`;
      socket.write(upgrade.toString().replace(/\/v1\S+/, target));
    }
  });
  socket.write(post(`/v1/apps/${appId}/console-token`, '{"session":"shell"}'));
}

const history = Buffer.from(
  "GET /v1/metrics/history?limit=1000&step=86400 HTTP/1.1\r\nHost: localhost\r\n\r\n",
);

/** @type {Record<string, () => void>} */
const floods = {
  // Every other one disconnects before its response.
  consoles: () => {
    let count = 0;
    hold(scaled(500), (socket) => void socket.write(upgrade, () => ++count % 2 === 0 && socket.destroy()));
  },
  "messages of consoles": () => hold(scaled(8), sayToConsole),
  histories: () => hold(scaled(200), repeat(history)),
  connections: () => hold(scaled(1_000), (socket) => void socket.write(status)),
  "streams of HTTP/2": () => hold(scaled(1_024), streams),
  "windows of HTTP/2": () => hold(scaled(256), onSession(mebibyteOf(frame(8, 0, "\x00\x00\x00\x01")))),
  "bytes of HTTP/2": () => hold(scaled(256), onSession(mebibyteOf(frame(0, 1, "x")))),
  "messages of gRPC": () =>
    hold(scaled(256), (socket) => {
      socket.write(Buffer.concat([http2Start, attachFrame, logsFrame]));
      repeat(mebibyteOf(emptyMessages))(socket);
    }),
  "frames of consoles": () => hold(scaled(32), openConsole),
  "blank lines": () => hold(scaled(256), repeat(Buffer.alloc(mib, "\r\n"))),
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

// Before the other floods use up the user's connections.
const [early, others] = [kinds.filter((kind) => kind === "messages of consoles"), new Set(kinds)];
for (const kind of early) {
  others.delete(kind);
  floods[kind]?.();
  await opened.promise;
}
for (const kind of others) floods[kind]?.();
console.log("sending");
process.stdin.resume().on("end", () => process.exit());
