/** Probes an app at an interval and determines its health. */
import { spawn } from "node:child_process";
import { connect } from "node:net";
import { runIdVariable } from "../../sys/run-cookie.mjs";

/** @import { HealthSpec, HealthState, SupervisorSpec } from "./supervisor-types.ts" */
/** @typedef {Pick<SupervisorSpec, "cwd" | "env" | "runId">} ProbeEnvironment The environment of a probe command. */
/**
 * @typedef {object} AppListener What is known about the app's ports
 * @property {((port: number) => string | undefined | Promise<string | undefined>) | undefined} [explainPortConflict] why the
 *   listener at a port is not the app
 * @property {(() => number[]) | undefined} [openPorts] TCP ports at which the app listens
 * @property {((port: number) => string | undefined) | undefined} [otherAddress] address at which the app listens if the port
 *   refuses connections to 127.0.0.1
 * @property {((port: number) => string | undefined) | undefined} [hostOf] address to connect to; `undefined` if the app does
 *   not publish the port
 */

/** How long a forwarded connection must stay open. */
const settleMs = 300;
const statusLineForm = /^HTTP\/1\.[01] (\d{3})/;

/** Lives from the app's start to its end. */
export class HealthCheck {
  #spec;
  #health;
  #onChange;
  #listener;
  /** @type {string | undefined} */
  #reason;
  #failures = 0;
  #startedMs = process.uptime() * 1000;
  /** @type {HealthState} */
  #state = "starting";
  /** @type {NodeJS.Timeout | undefined} */
  #timer;
  #stopped = false;
  #isHeld = false;
  #holds = 0;

  /**
   * @param {ProbeEnvironment} spec
   * @param {HealthSpec} health
   * @param {(state: HealthState, reason: string | undefined) => void} onChange the reason is the last failure's,
   *   until a probe passes
   * @param {AppListener} [listener]
   */
  constructor(spec, health, onChange, listener = {}) {
    this.#spec = spec;
    this.#listener = listener;
    this.#health = health;
    this.#onChange = onChange;
    this.#schedule(Math.min(health.intervalMs, 500));
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  /** Keeps the state unchanged until {@link release}, whatever a running probe returns. */
  hold() {
    this.#isHeld = true;
    this.#holds++;
  }

  release() {
    this.#isHeld = false;
  }

  /** @param {number} delayMs */
  #schedule(delayMs) {
    this.#timer = setTimeout(() => void this.#probe(), delayMs);
  }

  async #probe() {
    const holds = this.#holds;
    const reason = this.#isHeld ? undefined : await this.#failure();
    if (this.#stopped) return;
    if (!this.#isHeld && holds === this.#holds) this.#judge(reason);
    // Probe a starting app more often, so that callers who wait for it continue soon.
    const { intervalMs } = this.#health;
    this.#schedule(this.#state === "starting" ? Math.min(intervalMs, 1000) : intervalMs);
  }

  /** @param {string | undefined} reason */
  #judge(reason) {
    const passed = reason === undefined;
    const inStartPeriod = this.#isInStartPeriod();
    if (passed) {
      this.#failures = 0;
      this.#become("healthy", undefined);
    } else if (this.#state !== "starting" || !inStartPeriod) {
      this.#failures++;
      this.#become(this.#failures >= this.#health.retries ? "unhealthy" : this.#state, reason);
    } else {
      this.#become("starting", reason);
    }
  }

  #isInStartPeriod() {
    return process.uptime() * 1000 - this.#startedMs < this.#health.startPeriodMs;
  }

  /** Why the app is unhealthy; `undefined` if it is healthy. */
  async #failure() {
    const { http, tcp } = this.#health;
    const { hostOf, explainPortConflict } = this.#listener;
    try {
      const port = http?.port ?? tcp?.port;
      const host = port === undefined ? undefined : hostOf?.(port);
      if (hostOf !== undefined && port !== undefined && host === undefined)
        return `port ${port} is not published by a container of this app`;
      const reason = await this.#probeAt(port, host);
      if (port === undefined) return reason;
      if (reason === refusal(port)) return `${reason}${this.#otherPorts()}`;
      return reason ?? (await explainPortConflict?.(port));
    } catch (error) {
      return String(error);
    }
  }

  /** Where an app listens that ignores its port. An app that is still starting is not searched for. */
  #otherPorts() {
    const ports = this.#isInStartPeriod() ? [] : (this.#listener.openPorts?.() ?? []);
    return ports.length === 0 ? "" : `; the app listens on ${ports.join(", ")} instead`;
  }

  /**
   * @param {number | undefined} port
   * @param {string | undefined} host
   */
  async #probeAt(port, host) {
    const reason = await probe(this.#spec, withHost(this.#health, host), host !== undefined);
    const isRefused = port !== undefined && reason === refusal(port);
    const other = isRefused ? this.#listener.otherAddress?.(port) : undefined;
    return other === undefined ? reason : probe(this.#spec, withHost(this.#health, other), false);
  }

  /**
   * @param {HealthState} state
   * @param {string | undefined} reason
   */
  #become(state, reason) {
    if (this.#state === state && this.#reason === reason) return;
    this.#state = state;
    this.#reason = reason;
    this.#onChange(state, reason);
  }
}

/**
 * @param {HealthSpec} health
 * @param {string | undefined} host
 * @returns {HealthSpec}
 */
function withHost(health, host) {
  if (host === undefined) return health;
  const { http, tcp } = health;
  return { ...health, ...(http && { http: { ...http, host } }), ...(tcp && { tcp: { ...tcp, host } }) };
}

/**
 * @param {ProbeEnvironment} spec
 * @param {HealthSpec} health
 * @param {boolean} isForwarded whether the container engine accepts the connections of published ports
 * @returns {Promise<string | undefined>} why the probe failed
 */
function probe(spec, health, isForwarded) {
  if (health.exec) return probeExec(spec, health.exec.argv, health.timeoutMs);
  if (health.http) return probeHttp(health.http, health.timeoutMs);
  if (health.tcp) return probeTcp(health.tcp, health.timeoutMs, isForwarded);
  return Promise.resolve(undefined);
}

/**
 * The container engine accepts a connection before it connects to the container, and closes it if nothing listens there.
 * @param {{ host?: string, port: number }} target
 * @param {number} timeoutMs
 * @param {boolean} isForwarded
 * @returns {Promise<string | undefined>}
 */
function probeTcp(target, timeoutMs, isForwarded) {
  return converse(target, timeoutMs, (socket, done) => {
    const accepted = () => done(undefined);
    if (!isForwarded) return void socket.once("connect", accepted);
    socket.once("connect", () => setTimeout(accepted, Math.min(settleMs, timeoutMs / 2)));
    socket.once("data", accepted);
  });
}

/**
 * Speaks HTTP itself: only the status line matters, and `node:http` would cost every supervisor 2 MB.
 * @param {{ host?: string, port: number, path: string }} target
 * @param {number} timeoutMs
 * @returns {Promise<string | undefined>}
 */
function probeHttp({ host = "127.0.0.1", port, path }, timeoutMs) {
  return converse({ host, port }, timeoutMs, (socket, done) => {
    let head = "";
    socket.setEncoding("latin1");
    socket.once("connect", () => {
      const name = host.includes(":") ? `[${host}]` : host;
      socket.write(
        `GET ${path.toWellFormed().replace(/[^!-~]/gu, encodeURIComponent)} HTTP/1.1\r\nHost: ${name}:${port}\r\nUser-Agent: svc-health\r\nAccept: */*\r\nConnection: close\r\n\r\n`,
      );
    });
    socket.on("data", (/** @type {string} */ text) => {
      head += text;
      if (head.length < 12) return;
      const status = statusLineForm.exec(head)?.[1];
      const isGood = status?.startsWith("2") === true || status?.startsWith("3") === true;
      if (isGood) done(undefined);
      else
        done(
          status === undefined
            ? `the response of port ${port} is not HTTP`
            : `GET ${path} returned status ${status}`,
        );
    });
  });
}

/**
 * @param {{ host?: string, port: number }} target
 * @param {number} timeoutMs
 * @param {(socket: import("node:net").Socket, done: (reason: string | undefined) => void) => void} talk
 * @returns {Promise<string | undefined>}
 */
function converse({ host = "127.0.0.1", port }, timeoutMs, talk) {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const done = (/** @type {string | undefined} */ reason) => {
      resolve(reason);
      socket.destroy();
    };
    const timer = setTimeout(() => done(`port ${port} did not respond within ${timeoutMs} ms`), timeoutMs);
    socket.once("error", (/** @type {NodeJS.ErrnoException} */ error) => {
      done(error.code === "ECONNREFUSED" ? refusal(port) : `port ${port}: ${error.message}`);
    });
    socket.once("close", () => {
      clearTimeout(timer);
      resolve(`port ${port} closed the connection`);
    });
    talk(socket, done);
  });
}

/** @param {number} port */
function refusal(port) {
  return `nothing listens on port ${port}`;
}

/**
 * @param {ProbeEnvironment} spec
 * @param {string[]} argv
 * @param {number} timeoutMs
 * @returns {Promise<string | undefined>}
 */
function probeExec(spec, [program = "", ...args], timeoutMs) {
  return new Promise((resolve) => {
    const child = spawn(program, args, {
      cwd: spec.cwd,
      // The run's cookie in the environment lets the app's end also end a hanging probe.
      env: { ...spec.env, [runIdVariable]: spec.runId },
      detached: true,
      stdio: "ignore",
    });
    const timer = setTimeout(() => {
      if (child.pid === undefined || child.exitCode !== null) return;
      resolve(`the health check "${program}" did not exit within ${timeoutMs} ms`);
      try {
        process.kill(-child.pid, "SIGKILL");
      } catch {
        // The group has already ended.
      }
    }, timeoutMs);
    child.once("error", (error) => {
      clearTimeout(timer);
      resolve(error.message);
    });
    child.once("exit", (code, signal) => {
      clearTimeout(timer);
      resolve(
        code === 0
          ? undefined
          : `the health check "${program}" ${code === null ? `was killed by ${signal}` : `exited with code ${code}`}`,
      );
    });
  });
}
