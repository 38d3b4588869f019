/**
 * Probes an app at an interval and says whether it is healthy.
 */
import { spawn } from "node:child_process";
import { connect } from "node:net";
import { runIdVariable } from "../../lib/run-cookie.mjs";

/** @import { HealthSpec, HealthState, SupervisorSpec } from "./supervisor-types.ts" */
/** @typedef {Pick<SupervisorSpec, "cwd" | "env" | "runId">} ProbeEnvironment What a probe that is a command is run with. */

const STATUS_LINE = /^HTTP\/1\.[01] ([23])\d\d/;

/** From the start of the app to its end; each start gets a check of its own. */
export class HealthCheck {
  #spec;
  #health;
  #onChange;
  #failures = 0;
  #startedMs = process.uptime() * 1000;
  /** @type {HealthState} */
  #state = "starting";
  /** @type {NodeJS.Timeout | undefined} */
  #timer;
  #stopped = false;

  /**
   * @param {ProbeEnvironment} spec
   * @param {HealthSpec} health
   * @param {(state: HealthState) => void} onChange
   */
  constructor(spec, health, onChange) {
    this.#spec = spec;
    this.#health = health;
    this.#onChange = onChange;
    this.#schedule(Math.min(health.intervalMs, 500));
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  /** @param {number} delayMs */
  #schedule(delayMs) {
    this.#timer = setTimeout(() => void this.#probe(), delayMs);
  }

  async #probe() {
    const passed = await probe(this.#spec, this.#health).catch(() => false);
    if (this.#stopped) return;
    const inStartPeriod = process.uptime() * 1000 - this.#startedMs < this.#health.startPeriodMs;
    if (passed) {
      this.#failures = 0;
      this.#become("healthy");
    } else if (this.#state !== "starting" || !inStartPeriod) {
      this.#failures++;
      if (this.#failures >= this.#health.retries) this.#become("unhealthy");
    }
    // A starting app is asked more often, so that who waits for it learns of it soon.
    const { intervalMs } = this.#health;
    this.#schedule(this.#state === "starting" ? Math.min(intervalMs, 1000) : intervalMs);
  }

  /** @param {HealthState} state */
  #become(state) {
    if (this.#state === state) return;
    this.#state = state;
    this.#onChange(state);
  }
}

/**
 * @param {ProbeEnvironment} spec
 * @param {HealthSpec} health
 * @returns {Promise<boolean>}
 */
function probe(spec, health) {
  if (health.exec) return probeExec(spec, health.exec.argv, health.timeoutMs);
  if (health.http) return probeHttp(health.http, health.timeoutMs);
  if (health.tcp) return probeTcp(health.tcp, health.timeoutMs);
  return Promise.resolve(true);
}

/**
 * @param {{ host?: string, port: number }} target
 * @param {number} timeoutMs
 * @returns {Promise<boolean>}
 */
function probeTcp({ host = "127.0.0.1", port }, timeoutMs) {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const timer = setTimeout(() => socket.destroy(), timeoutMs);
    socket.once("connect", () => {
      resolve(true);
      socket.destroy();
    });
    socket.once("error", () => undefined);
    socket.once("close", () => {
      clearTimeout(timer);
      resolve(false);
    });
  });
}

/**
 * HTTP by hand: only the status line counts, and `node:http` would cost every supervisor two megabytes.
 * @param {{ host?: string, port: number, path: string }} target
 * @param {number} timeoutMs
 * @returns {Promise<boolean>}
 */
function probeHttp({ host = "127.0.0.1", port, path }, timeoutMs) {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const timer = setTimeout(() => socket.destroy(), timeoutMs);
    let head = "";
    socket.setEncoding("latin1");
    socket.once("connect", () => {
      const name = host.includes(":") ? `[${host}]` : host;
      socket.write(
        `GET ${path.replace(/[^!-~]/gu, encodeURIComponent)} HTTP/1.1\r\nHost: ${name}:${port}\r\nUser-Agent: svc-health\r\nAccept: */*\r\nConnection: close\r\n\r\n`,
      );
    });
    socket.on("data", (/** @type {string} */ text) => {
      head += text;
      if (head.length < 12) return;
      resolve(STATUS_LINE.test(head));
      socket.destroy();
    });
    socket.once("error", () => undefined);
    socket.once("close", () => {
      clearTimeout(timer);
      resolve(false);
    });
  });
}

/**
 * @param {ProbeEnvironment} spec
 * @param {string[]} argv
 * @param {number} timeoutMs
 * @returns {Promise<boolean>}
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
      try {
        process.kill(-child.pid, "SIGKILL");
      } catch {
        // The group has ended by itself.
      }
    }, timeoutMs);
    child.once("error", () => {
      clearTimeout(timer);
      resolve(false);
    });
    child.once("exit", (code) => {
      clearTimeout(timer);
      resolve(code === 0);
    });
  });
}
