/** Notes for commands that run without a daemon. */
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { join } from "node:path";
import { xdgDir } from "../lib/paths.ts";
import { exists } from "./exists.ts";
import type { CliHost } from "./host.ts";
import type { UnaryCall } from "./client/calls.ts";
import type { CallOptions, Client, Method, Requests } from "./client/client.ts";

/** The properties that determine how to start a daemon. */
export type Installation = Pick<CliHost, "uid" | "home" | "env" | "sockets" | "root">;

/** The command that starts a daemon, for the end of a sentence. */
export function daemonCommand(installation: Installation): string {
  const { uid, root, sockets } = installation;
  if (sockets.checkoutDir !== undefined) return "npm start";
  if (!exists(join(root, "run/systemd/system"))) return "svc daemon";
  const dirs =
    uid === 0
      ? ["etc/systemd/system", "usr/lib/systemd/system"]
      : [join(xdgDir(installation, "XDG_CONFIG_HOME", ".config"), "systemd/user")];
  const start = `systemctl ${uid === 0 ? "" : "--user "}enable --now svc`;
  // The package installs the system unit; `svc setup` copies it for a user.
  return dirs.some((dir) => exists(join(root, dir, "svc.service"))) ? start : `svc setup && ${start}`;
}

/** Sentences by method: the full name of the service, then the name of the method. */
export type CallNotes = Readonly<Record<string, string>>;

/** Notes about what only a daemon would do. */
export function jobNotes(installation: Installation): CallNotes {
  const wait = `jobs run only while a daemon runs, and no daemon is running; start one: ${daemonCommand(installation)}`;
  return {
    "svc.v1.ScheduleService/listSchedules": wait,
    "svc.v1.ScheduleService/getSchedule": wait,
    "svc.v1.ScheduleService/upsertSchedule": wait,
  };
}

/** Like {@link jobNotes}, if nothing has yet reported that no daemon runs. */
export function noDaemonNotes(installation: Installation): CallNotes {
  const none = `no daemon is running, so the command runs in this process; start one: ${daemonCommand(installation)}`;
  return { ...jobNotes(installation), "svc.v1.DaemonService/getStatus": none };
}

/**
 * Warns a regular user who works in a private store although the host has a system-wide store whose daemon is
 * stopped. Undefined if there is no system-wide store, or for root, who uses it.
 */
export function systemDaemonDown({
  uid,
  stores,
  sockets,
}: Pick<CliHost, "uid" | "stores" | "sockets">): string | undefined {
  if (uid === 0 || !exists(stores.system)) return undefined;
  return `the system daemon is not running (no socket ${sockets.system}), so this uses your private store ${stores.user}; to start the system daemon: sudo systemctl start svc`;
}

/**
 * Prints each note once, after the first successful call that it concerns. After a failure only the error is
 * printed.
 */
export class NotingClient implements Client {
  readonly #client: Client;
  readonly #notes: CallNotes;
  readonly #print: (note: string) => void;
  readonly #printed = new Set<string>();

  constructor(client: Client, notes: CallNotes, say: (note: string) => void) {
    this.#client = client;
    this.#notes = notes;
    this.#print = say;
  }

  async call<Request, Response>(
    call: UnaryCall<Request, Response>,
    request: Request,
    options?: CallOptions,
  ): Promise<Response> {
    const answer = await this.#client.call(call, request, options);
    this.#noteOn(call.service, call.method);
    return answer;
  }

  async *invoke<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    requests: Requests<I>,
    options?: CallOptions,
  ): AsyncIterable<MessageShape<O>> {
    for await (const message of this.#client.invoke(method, requests, options)) {
      this.#noteOn(method.parent.typeName, method.localName);
      yield message;
    }
  }

  #noteOn(service: string, method: string): void {
    const note = this.#notes[`${service}/${method}`];
    if (note === undefined || this.#printed.has(note)) return;
    this.#printed.add(note);
    this.#print(note);
  }

  outlives(): Promise<boolean> {
    return this.#client.outlives();
  }

  isAvailable(signal?: AbortSignal): Promise<boolean> {
    return this.#client.isAvailable(signal);
  }

  [Symbol.asyncDispose](): PromiseLike<void> {
    return this.#client[Symbol.asyncDispose]();
  }
}
