/** Attacks by a node that an app is copied or moved from. */
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService, DownloadBackupRequestSchema } from "../../gen/svc/v1/backup_pb.ts";
import { encodeEnvelope } from "../../src/cli/client/envelope.ts";
import { runSvc, type SvcRun } from "../cli/support/run-svc.ts";
import { isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { freePort, writePackage } from "../support/packages.ts";

const rootTest = isRoot ? test : test.skip;
const victim = 5;

interface Liar extends AsyncDisposable {
  readonly socketPath: string;
}

/** A daemon that sends the archive of another app in place of the requested one. */
async function startLiar(dir: string, daemonSocket: string, appId: string, name: string): Promise<Liar> {
  const socketPath = join(dir, "liar.sock");
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    let body: Buffer<ArrayBuffer> = Buffer.concat((await request.toArray()) as Buffer[]);
    if (request.url?.endsWith("/DownloadBackup") === true) {
      const asked = fromBinary(DownloadBackupRequestSchema, body.subarray(5));
      body = encodeEnvelope(
        0,
        toBinary(DownloadBackupRequestSchema, { ...asked, appId, name }),
      ) as typeof body;
    }
    const { "transfer-encoding": _, ...headers } = request.headers;
    const sent = httpRequest(
      {
        ...{ socketPath: daemonSocket, method: request.method, path: request.url },
        headers: { ...headers, "content-length": body.length },
      },
      (answered) => {
        response.writeHead(answered.statusCode ?? 500, answered.headers);
        answered.pipe(response);
      },
    );
    sent.on("error", () => response.destroy());
    sent.end(body);
  };
  const server = createServer((request, response) => void answer(request, response));
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  return {
    socketPath,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

rootTest(
  `a source node replaces no other app of the target node, and chooses no other owner${needsRoot}`,
  async (t) => {
    t.timeout(180_000);
    await using near = await startDaemon();
    await using attic = await startDaemon();
    await using theirs = await near.as(victim);
    const home = await mkdtemp(join(tmpdir(), "svc-hostile-node-"));
    t.teardown(() => rm(home, { recursive: true }));
    const svc = (...args: string[]): Promise<SvcRun> => runSvc(args, { host: { home, uid: 0 } });
    const dir = join(near.dir, "package");
    await writePackage(dir, await freePort());
    const apps = near.client(AppService);
    const install = async (id: string, client = apps): Promise<string> => {
      await client.installApp({ spec: dir, name: id, settings: { greeting: `from near: ${id}` } });
      const { results } = await near.client(BackupService).createBackup({ appId: id });
      return results[0]?.name ?? "";
    };
    const bait = await install("bait");
    const other = await install("precious");
    const foreign = await install("foreign", theirs.client(AppService));
    await attic.client(AppService).installApp({
      ...{ spec: dir, name: "precious" },
      settings: { greeting: "from attic" },
    });
    t.not(bait, "");

    for (const command of ["copy", "move"]) {
      for (const [appId, name] of [
        ["precious", other],
        ["foreign", foreign],
      ] as const) {
        await using liar = await startLiar(home, near.socketPath, appId, name);
        await svc("node", "add", "liar", `unix://${liar.socketPath}`);
        await svc("node", "add", "attic", `unix://${attic.socketPath}`);
        const run = await svc("-N", "liar", "app", command, "bait", "--to", "attic", "--accept-permissions");
        t.not(run.exitCode, 0, run.stdout);
        t.regex(
          run.stderr,
          new RegExp(`sent an archive of another app: its ID is "${appId}" instead of "bait"`),
        );
      }
    }
    const { apps: there } = await attic.client(AppService).listApps({});
    t.deepEqual(
      there.map(({ id, owner }) => [id, owner]),
      [["precious", 0]],
    );
    const { values } = await attic.client(AppService).getAppSettings({ id: "precious" });
    t.is(values?.["greeting"], "from attic");
    t.deepEqual((await attic.client(BackupService).listBackups({})).backups, []);
  },
);
