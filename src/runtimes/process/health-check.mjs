/**
 * Probes an app at an interval and says whether it is healthy.
 */
import { spawn } from "node:child_process";
import { connect } from "node:net";
import { runIdVariable } from "../../lib/run-cookie.mjs";

/** @import { HealthSpec, HealthState, SupervisorSpec } from "./supervisor-types.ts" */
/** @typedef {Pick<SupervisorSpec, "cwd" | "env" | "runId">} ProbeEnvironment What a probe that is a command is run with. */

const statusLineForm = /^HTTP\/1\.[01] (\d{3})/;

/** From the start of the app to its end; each start gets a check of its own. */
export class HealthCheck {
  #spec;
  #health;
  #onChange;
  #whyForeign;
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
   * @param {(state: HealthState, reason: string | undefined) => void} onChange the reason is the last failure's, until one passes
   * @param {(port: number) => string | undefined | Promise<string | undefined>} [whyForeign] why what answers at a port is not the app
   */
  constructor(spec, health, onChange, whyForeign = () => undefined) {
    this.#spec = spec;
    this.#whyForeign = whyForeign;
    this.#health = health;
    this.#onChange = onChange;
    this.#schedule(Math.min(health.intervalMs, 500));
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  /** Until {@link release} the state stays as it is, whatever a probe that is under way says. */
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
    // A starting app is asked more often, so that who waits for it learns of it soon.
    const { intervalMs } = this.#health;
    this.#schedule(this.#state === "starting" ? Math.min(intervalMs, 1000) : intervalMs);
  }

  /** @param {string | undefined} reason */
  #judge(reason) {
    const passed = reason === undefined;
    const inStartPeriod = process.uptime() * 1000 - this.#startedMs < this.#health.startPeriodMs;
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

  /** Why the app is not well; `undefined` when it is. */
  async #failure() {
    const { http, tcp } = this.#health;
    try {
      const reason = await probe(this.#spec, this.#health);
      const port = http?.port ?? tcp?.port;
      return reason ?? (port === undefined ? undefined : await this.#whyForeign(port));
    } catch (error) {
      return String(error);
    }
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
 * @param {ProbeEnvironment} spec
 * @param {HealthSpec} health
 * @returns {Promise<string | undefined>} what is wrong
 */
function probe(spec, health) {
  if (health.exec) return probeExec(spec, health.exec.argv, health.timeoutMs);
  if (health.http) return probeHttp(health.http, health.timeoutMs);
  if (health.tcp) return probeTcp(health.tcp, health.timeoutMs);
  return Promise.resolve(undefined);
}

/**
 * @param {{ host?: string, port: number }} target
 * @param {number} timeoutMs
 * @returns {Promise<string | undefined>}
 */
function probeTcp(target, timeoutMs) {
  return converse(target, timeoutMs, (socket, done) => socket.once("connect", () => done(undefined)));
}

/**
 * HTTP by hand: only the status line counts, and `node:http` would cost every supervisor two megabytes.
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
          status === undefined ? `port ${port} answers no HTTP` : `GET ${path} is answered with ${status}`,
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
    const timer = setTimeout(() => done(`port ${port} does not answer within ${timeoutMs} ms`), timeoutMs);
    socket.once("error", (/** @type {NodeJS.ErrnoException} */ error) => {
      done(
        error.code === "ECONNREFUSED" ? `nothing listens on port ${port}` : `port ${port}: ${error.message}`,
      );
    });
    socket.once("close", () => {
      clearTimeout(timer);
      resolve(`port ${port} hangs up`);
    });
    talk(socket, done);
  });
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
      // With the cookie, so that ending the app ends a probe that hangs.
      env: { ...spec.env, [runIdVariable]: spec.runId },
      detached: true,
      stdio: "ignore",
    });
    const timer = setTimeout(() => {
      if (child.pid === undefined || child.exitCode !== null) return;
      resolve(`${program} does not end within ${timeoutMs} ms`);
      try {
        process.kill(-child.pid, "SIGKILL");
      } catch {
        // The group has ended by itself.
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
          : `${program} ${code === null ? `was ended by ${signal}` : `exited with code ${code}`}`,
      );
    });
  });
}
