/** Signals to processes of the host, for root: never to a process that was not meant. */
import { constants } from "node:os";
import type { SignalProcessRequestSignal } from "../../gen/svc/v1/words.ts";
import { SvcError, notFound } from "../errors.ts";
import { readProcess } from "../lib/process-table.mjs";
import { createProcessOpener, type ProcessHandle } from "./pidfd.ts";

export interface SignalRequest {
  readonly pid: number;
  readonly signal: SignalProcessRequestSignal;
  /** Its start marker, where the caller knows it. */
  readonly expectedStartTicks?: number;
}

export interface ProcessSignalsOptions {
  /** The daemon's own. */
  selfPid: number;
  /** Of the supervisors of apps. */
  supervisors: () => Iterable<number>;
}

export class ProcessSignals {
  readonly #options: ProcessSignalsOptions;
  #open: ((pid: number) => ProcessHandle) | undefined;

  constructor(options: ProcessSignalsOptions) {
    this.#options = options;
  }

  /** @throws SvcError `denied` for what svc and the host stand on, `not_found`, `pid_reused` */
  send({ pid, signal, expectedStartTicks }: SignalRequest): void {
    if (pid === 1) throw denied("process 1 is the host's first: everything ends with it");
    if (pid === this.#options.selfPid)
      throw denied(`process ${pid} is svc's own daemon: stop it as a service`);
    try {
      // From here on it is this process, whoever gets its pid.
      using handle = (this.#open ??= createProcessOpener())(pid);
      const found = readProcess(pid);
      if (found === undefined) throw gone(pid);
      if (expectedStartTicks !== undefined && found.startTicks !== expectedStartTicks) {
        const why = `process ${pid} is another one by now: it started at tick ${found.startTicks}, not ${expectedStartTicks}`;
        throw new SvcError("pid_reused", why);
      }
      if (found.isKernelThread) throw denied(`process ${pid} is a thread of the kernel's`);
      if (found.ppid === this.#options.selfPid) throw denied(`process ${pid} is a helper of svc's daemon`);
      if (new Set(this.#options.supervisors()).has(pid)) {
        throw denied(`process ${pid} is the supervisor of an app: use svc app stop`);
      }
      handle.signal(numberOf(signal));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ESRCH") throw gone(pid);
      throw error;
    }
  }
}

/** The contract's words are the ends of the names. */
function numberOf(signal: SignalProcessRequestSignal): number {
  return constants.signals[`SIG${signal.toUpperCase() as Uppercase<SignalProcessRequestSignal>}`];
}

function denied(message: string): SvcError {
  return new SvcError("denied", message);
}

function gone(pid: number): SvcError {
  return notFound("process", String(pid), `process ${pid} does not exist`);
}
