/**
 * Starts the main process of an app, in a session of its own, and carries its output to the log.
 */
import { execFileSync, spawn } from "node:child_process";
import { closeSync, constants, openSync, unlinkSync } from "node:fs";
import { Socket } from "node:net";
import { OutputFlow } from "../../lib/output-flow.mjs";
import { readProcess } from "../../lib/process-table.mjs";
import { runIdVariable } from "../../lib/run-cookie.mjs";
import { describeSpawnFailure, missingProgram } from "./spawn-failure.mjs";

/** @import { AppTerminal } from "./app-terminal.mjs" */
/** @import { LogWriter } from "./log-writer.mjs" */
/** @import { SupervisorSpec } from "./supervisor-types.ts" */

/**
 * @typedef {object} AppExit
 * @property {number | null} code
 * @property {NodeJS.Signals | null} signal
 * @property {string} [error] why it could not be run at all
 */

/**
 * @typedef {object} AppProcess
 * @property {number | undefined} pid `undefined` when it could not be run
 * @property {number} startTicks
 * @property {Promise<AppExit>} exited
 * @property {(quietMs: number) => Promise<void>} drain resolves when all output of the app is in the log; somebody who has
 *   outlived it may hold its pipes open for ever, so it is over, too, when nothing has come for as long
 */

const chunkBytes = 64 * 1024;
const makePipesMs = 10_000;
const outputPipes = /** @type {const} */ ([
  { path: "stdout.pipe", source: "o" },
  { path: "stderr.pipe", source: "e" },
]);

/**
 * Makes the pipes for stdout and stderr in the working directory. They are named pipes and not the socket pairs that
 * Node makes by itself, because a program cannot open `/dev/stdout` when that is a socket.
 */
export function makeOutputPipes() {
  for (const { path } of outputPipes) {
    try {
      unlinkSync(path);
    } catch {
      // There is none of an earlier start.
    }
  }
  // Not beside other work: there is none yet, and to be told of its end takes longer than to wait for it.
  execFileSync("mkfifo", ["-m", "600", ...outputPipes.map(({ path }) => path)], {
    stdio: ["ignore", "ignore", "pipe"],
    timeout: makePipesMs,
  });
}

/**
 * @param {SupervisorSpec} spec
 * @param {LogWriter} log
 * @param {AppTerminal | undefined} terminal where the app has one of its own
 * @returns {AppProcess}
 */
export function startApp(spec, log, terminal) {
  return terminal === undefined ? startWithPipes(spec, log) : startAtTerminal(spec, terminal);
}

/**
 * @param {SupervisorSpec} spec
 * @param {AppTerminal} terminal
 * @returns {AppProcess}
 */
function startAtTerminal(spec, terminal) {
  const { path, farFd, flow, ended, closeFar, hangUp } = terminal.open();
  // Opening it makes it the session's.
  const takesTerminal = ["/bin/sh", "-c", 'exec <>"$0" >&0 2>&0; exec "$@"', path];
  const env = { TERM: "xterm-256color", ...spec.env };
  const command = [...takesTerminal, ...launchCommand(spec)];
  const child = spawnApp({ ...spec, env }, command, [farFd, farFd, farFd]);
  return {
    pid: child.pid,
    startTicks: startTicksOf(child.pid),
    exited: child.exited,
    drain: async (quietMs) => {
      closeFar();
      await Promise.race([ended, flow.ranDry(quietMs)]);
      hangUp();
      await ended;
    },
  };
}

/**
 * @param {SupervisorSpec} spec
 * @param {LogWriter} log
 * @returns {AppProcess}
 */
function startWithPipes(spec, log) {
  const flow = new OutputFlow();
  const outputs = outputPipes.map(({ path, source }) => {
    const take = flow.watched((chunk) => log.write(source, chunk));
    return openOutput(path, take, () => log.finishLine(source));
  });
  const child = spawnApp(spec, launchCommand(spec), ["ignore", ...outputs.map(({ writeEnd }) => writeEnd)]);
  for (const { writeEnd } of outputs) closeSync(writeEnd);
  return {
    pid: child.pid,
    startTicks: startTicksOf(child.pid),
    exited: child.exited,
    drain: async (quietMs) => {
      const ended = Promise.all(outputs.map((output) => output.ended));
      await Promise.race([ended, flow.ranDry(quietMs)]);
      for (const { socket } of outputs) socket.destroy();
      await ended;
    },
  };
}

/** @param {number | undefined} pid */
function startTicksOf(pid) {
  return (pid !== undefined && readProcess(pid)?.startTicks) || 0;
}

/**
 * @param {SupervisorSpec} spec
 * @param {string[]} command
 * @param {("ignore" | number)[]} stdio
 * @returns {{ pid: number | undefined, exited: Promise<AppExit> }}
 */
function spawnApp(spec, command, stdio) {
  const missing = missingProgram(spec);
  if (missing !== undefined)
    return { pid: undefined, exited: Promise.resolve({ code: null, signal: null, error: missing }) };
  const [program = "", ...args] = command;
  const failed = (/** @type {NodeJS.ErrnoException} */ error) => ({
    code: null,
    signal: null,
    error: describeSpawnFailure(error, program, spec.cwd),
  });
  try {
    const child = spawn(program, args, {
      cwd: spec.cwd,
      env: { ...spec.env, [runIdVariable]: spec.runId },
      detached: true,
      stdio,
    });
    const exited = new Promise((/** @type {(exit: AppExit) => void} */ resolve) => {
      child.once("error", (error) => resolve(failed(error)));
      child.once("exit", (code, signal) => resolve({ code, signal }));
    });
    return { pid: child.pid, exited };
  } catch (error) {
    return { pid: undefined, exited: Promise.resolve(failed(/** @type {Error} */ (error))) };
  }
}

/**
 * The app's command behind what moves it into its cgroup and sets its limits before it is executed, each of which
 * replaces itself with the next.
 * @param {SupervisorSpec} spec
 * @returns {string[]}
 */
function launchCommand({ appId, argv, cgroup, limits: { openFiles } }) {
  const limited =
    openFiles === undefined ? argv : ["prlimit", `--nofile=${openFiles}:${openFiles}`, "--", ...argv];
  if (cgroup === null) return limited;
  return [
    "/bin/sh",
    "-c",
    'echo 0 > "$1" && shift && exec "$@"',
    appId,
    `${cgroup}/app/cgroup.procs`,
    ...limited,
  ];
}

/**
 * Opens both ends of a pipe and hands on what arrives, reading on only when it has been taken.
 * @param {string} path
 * @param {(chunk: Buffer) => Promise<void>} take
 * @param {() => Promise<void>} finish
 */
function openOutput(path, take, finish) {
  // Non-blocking, or the open would wait for a writer.
  const readEnd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const writeEnd = openSync(path, constants.O_WRONLY);
  const buffer = Buffer.allocUnsafeSlow(chunkBytes);
  const socket = new Socket(
    /** @type {import("node:net").SocketConstructorOpts} */ ({
      fd: readEnd,
      readable: true,
      writable: false,
      // One buffer for all chunks: a flood of output leaves no garbage.
      onread: {
        buffer,
        callback: (/** @type {number} */ length) => {
          void take(buffer.subarray(0, length)).then(() => socket.resume());
          return false;
        },
      },
    }),
  );
  socket.on("error", () => undefined);
  const ended = new Promise((/** @type {(value: void) => void} */ resolve) => {
    socket.once("close", () => void finish().then(resolve));
  });
  socket.resume();
  return { writeEnd, socket, ended };
}
