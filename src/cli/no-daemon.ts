/** What a command says that works without a daemon. */
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { join } from "node:path";
import { SvcError } from "../errors.ts";
import { xdgDir } from "../lib/xdg.ts";
import { exists } from "./exists.ts";
import type { CliHost } from "./host.ts";
import type { UnaryCall } from "./transport/calls.ts";
import type { CallOptions, Client, Method, Requests } from "./transport/client.ts";

/** What tells how a daemon is started here. */
export type StartPlace = Pick<CliHost, "uid" | "home" | "env" | "sockets" | "root">;

/** How to start a daemon, for the end of a sentence. */
export function daemonCommand(place: StartPlace): string {
  const { uid, root, sockets } = place;
  if (sockets.checkoutDir !== undefined) return "npm start";
  if (!exists(join(root, "run/systemd/system"))) return "svc daemon";
  const dirs =
    uid === 0
      ? ["etc/systemd/system", "usr/lib/systemd/system"]
      : [join(xdgDir(place, "XDG_CONFIG_HOME", ".config"), "systemd/user")];
  const start = `systemctl ${uid === 0 ? "" : "--user "}enable --now svc`;
  // The unit of all comes with the package, that of a user's own from there.
  return dirs.some((dir) => exists(join(root, dir, "svc.service"))) ? start : `svc setup && ${start}`;
}

/** Sentences by the methods that they concern: the full name of the service, then the name of the method in it. */
export type CallNotes = Readonly<Record<string, string>>;

/** About what a daemon would do and this process does not. */
export function jobNotes(place: StartPlace): CallNotes {
  const wait = `jobs fire only while a daemon runs, and none does; start one: ${daemonCommand(place)}`;
  return {
    "svc.v1.ScheduleService/listSchedules": wait,
    "svc.v1.ScheduleService/getSchedule": wait,
    "svc.v1.ScheduleService/upsertSchedule": wait,
  };
}

/** As {@link jobNotes}, where nothing has said yet that there is no daemon. */
export function noDaemonNotes(place: StartPlace): CallNotes {
  const none = `no daemon runs: svc works in this process; start one: ${daemonCommand(place)}`;
  return { ...jobNotes(place), "svc.v1.DaemonService/getStatus": none };
}

/**
 * That the daemon of all users does not run, whose apps are not what a regular user would find without it; undefined where
 * there is no such daemon, or the user is root and works on its store.
 */
export function systemDaemonDown({
  uid,
  stores,
  sockets,
}: Pick<CliHost, "uid" | "stores" | "sockets">): SvcError | undefined {
  if (uid === 0 || !exists(stores.system)) return undefined;
  const message = `the system's daemon does not run (there is no ${sockets.system}), so its apps cannot be seen`;
  return new SvcError("unavailable", message);
}

/** Whether the user has a store of their own. */
export function hasPrivateStore({ stores }: Pick<CliHost, "stores">): boolean {
  return exists(join(stores.user, "svc.db"));
}

/** Says each note once, after the first call that it concerns and that succeeded: on a failure, the error alone is said. */
export class NotingClient implements Client {
  readonly #client: Client;
  readonly #notes: CallNotes;
  readonly #say: (note: string) => void;
  readonly #said = new Set<string>();

  constructor(client: Client, notes: CallNotes, say: (note: string) => void) {
    this.#client = client;
    this.#notes = notes;
    this.#say = say;
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
    if (note === undefined || this.#said.has(note)) return;
    this.#said.add(note);
    this.#say(note);
  }

  outlives(): Promise<boolean> {
    return this.#client.outlives();
  }

  isThere(signal?: AbortSignal): Promise<boolean> {
    return this.#client.isThere(signal);
  }

  [Symbol.asyncDispose](): PromiseLike<void> {
    return this.#client[Symbol.asyncDispose]();
  }
}
