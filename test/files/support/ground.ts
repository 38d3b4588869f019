/** A daemon, and a directory of a user that the tests may inspect. */
import { execFile } from "node:child_process";
import { chmod, chown, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Client } from "@connectrpc/connect";
import { FileService } from "../../../gen/svc/v1/file_pb.ts";
import { startDaemon, type TestDaemon, type UserConnection } from "../../support/daemon.ts";

/** `games` and `daemon`: accounts that every Debian has. */
export const ownerUid = 5;
export const otherUid = 1;

const run = promisify(execFile);

export interface Ground extends AsyncDisposable {
  daemon: TestDaemon;
  connection: UserConnection;
  /** Belongs to the owner. */
  home: string;
  /** The owner's. */
  files: Client<typeof FileService>;
  /** Runs a program of the system as a user. */
  as: (uid: number, ...argv: string[]) => Promise<string>;
}

export async function openGround(): Promise<Ground> {
  const daemon = await startDaemon();
  const connection = await daemon.as(ownerUid);
  return groundOf(daemon, connection, async () => {
    await connection[Symbol.asyncDispose]();
    await daemon[Symbol.asyncDispose]();
  });
}

/** A new home on an existing daemon. */
export async function groundOf(
  daemon: TestDaemon,
  connection: UserConnection,
  end: () => Promise<void>,
): Promise<Ground> {
  const home = join(daemon.dir, "home");
  await mkdir(home);
  await chown(home, ownerUid, 60);
  await chmod(home, 0o755);
  return {
    daemon,
    connection,
    home,
    files: connection.client(FileService),
    as: (uid, ...argv) => runAs(uid, ...argv),
    [Symbol.asyncDispose]: end,
  };
}

export async function runAs(uid: number, ...argv: string[]): Promise<string> {
  const options = [`--reuid=${uid}`, `--regid=${uid === ownerUid ? 60 : uid}`, "--init-groups", "--"];
  const { stdout } = await run("setpriv", [...options, ...argv], { maxBuffer: 64 << 20 });
  return stdout;
}
