/** `svc dial-stdio`: connects standard input and output to the daemon's socket, for a remote `svc -H ssh://…`. */
import { connect } from "node:net";
import type { Command } from "commander";
import { SvcError } from "../../errors.ts";
import type { CommandContext } from "../context.ts";
import { daemonCommand } from "../no-daemon.ts";
import type { RunCommand } from "../run-command.ts";
import { chooseRoute } from "../client/routing.ts";
import { UnreachableError } from "../client/http.ts";

export function addDialStdioCommand(parent: Command, run: RunCommand): void {
  parent
    .command("dial-stdio", { hidden: true })
    .description(
      "connect standard input and output with the daemon: what svc -H ssh://… runs on the far side",
    )
    .action(run(dial));
}

/** Milliseconds for the daemon to close the connection after this side has closed it. */
const endTimeoutMs = 30_000;

async function dial({ host, options }: CommandContext): Promise<void> {
  const route = chooseRoute({ socketOption: options.socket, sockets: host.sockets, uid: host.uid });
  if (route.kind === "in-process") {
    throw new SvcError("unavailable", `no daemon is running; start one there: ${daemonCommand(host)}`);
  }
  const { stdin, stdout, interrupted } = host;
  const socket = connect({ path: route.path, allowHalfOpen: true });
  const { promise: closed, resolve, reject } = Promise.withResolvers<undefined>();
  let isConnected = false;
  socket.once("connect", () => (isConnected = true));
  socket.once("error", (error) => reject(isConnected ? error : new UnreachableError(route.path, error)));
  socket.once("close", () => resolve(undefined));
  const end = (): void => void socket.destroy();
  interrupted.addEventListener("abort", end, { once: true });
  stdin.once("end", () => void socket.setTimeout(endTimeoutMs, end));
  stdin.once("error", end);
  // The reader is gone. The main program exits then; in tests only the stream closes.
  stdout.once("close", end);
  stdin.pipe(socket);
  socket.on("data", (bytes: Buffer) => {
    if (stdout.write(bytes)) return;
    socket.pause();
    stdout.once("drain", () => socket.resume());
  });
  // The daemon has closed its side: remaining input is not needed.
  socket.once("end", end);
  try {
    await closed;
  } finally {
    interrupted.removeEventListener("abort", end);
    stdin.unpipe(socket);
    stdin.destroy();
  }
}
