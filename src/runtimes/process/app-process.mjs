/** Starts the main process of an app in its own session and writes its output to the log. */
import { spawn } from "node:child_process";
import { closeSync } from "node:fs";
import { Socket } from "node:net";
import { OutputFlow } from "../../sys/output-flow.mjs";
import { readProcess } from "../../sys/process-table.mjs";
import { runIdVariable } from "../../sys/run-cookie.mjs";
import { describeSpawnFailure, missingProgram } from "./spawn-failure.mjs";

/** @import { OpenPipe } from "../../sys/pipe-ends.mjs" */
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
 * @property {(quietMs: number) => Promise<void>} drain resolves when all output of the app is in the log, or after
 *   `quietMs` without output: a process that outlives the app may keep its pipes open forever
 */

const chunkBytes = 64 * 1024;
/** As marked in the log. */
const outputSources = /** @type {const} */ (["o", "e"]);

/**
 * @param {SupervisorSpec} spec
 * @param {LogWriter} log
 * @param {AppTerminal | OpenPipe} output the app's terminal, or the function that opens pipes for stdout and stderr
 * @returns {AppProcess}
 */
export function startApp(spec, log, output) {
  return typeof output === "function" ? startWithPipes(spec, log, output) : startAtTerminal(spec, output);
}

/**
 * @param {SupervisorSpec} spec
 * @param {AppTerminal} terminal
 * @returns {AppProcess}
 */
function startAtTerminal(spec, terminal) {
  const { path, farFd, flow, ended, closeFar, hangUp } = terminal.open();
  // Opening the terminal makes it the session's controlling terminal.
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
 * @param {OpenPipe} openPipe
 * @returns {AppProcess}
 */
function startWithPipes(spec, log, openPipe) {
  const flow = new OutputFlow();
  const outputs = outputSources.map((source) => {
    const take = flow.watched((chunk) => log.write(source, chunk));
    return openOutput(openPipe(), take, () => log.finishLine(source));
  });
  const child = spawnApp(spec, launchCommand(spec), ["ignore", ...outputs.map(({ writeFd }) => writeFd)]);
  for (const { writeFd } of outputs) closeSync(writeFd);
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
 * The app's command, preceded by the programs that move it into its cgroup and set its limits; each executes the
 * next.
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
 * Forwards the data of a pipe; reads on only after `take` has resolved.
 * @param {ReturnType<OpenPipe>} pipe
 * @param {(chunk: Buffer) => Promise<void>} take
 * @param {() => Promise<void>} finish
 */
function openOutput({ readFd, writeFd }, take, finish) {
  const buffer = Buffer.allocUnsafeSlow(chunkBytes);
  const socket = new Socket(
    /** @type {import("node:net").SocketConstructorOpts} */ ({
      fd: readFd,
      readable: true,
      writable: false,
      // All chunks share one buffer, so that a lot of output creates no garbage.
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
  return { writeFd, socket, ended };
}
