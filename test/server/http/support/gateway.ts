/** Real listeners on a free port and a socket in a temporary directory, with handlers that the test controls. */
import { mkdtemp, rm, chmod } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sourcePages } from "../../../../src/daemon/page-files.ts";
import type { AuditRecord } from "../../../../src/server/rpc/audit.ts";
import type { BoundService } from "../../../../src/server/rpc/bound-service.ts";
import { createPipeline, type Pipeline } from "../../../../src/server/rpc/pipeline.ts";
import { mintToken } from "../../../../src/access/tokens/token-digest.ts";
import type { Tokens } from "../../../../src/access/tokens/tokens.ts";
import { Listeners, type ListenersOptions } from "../../../../src/server/http/listeners.ts";
import { fakeServices, type FakeHandlers } from "./fake-services.ts";

export interface LogLine {
  readonly level: "info" | "warn" | "error";
  readonly details: Readonly<Record<string, unknown>>;
  readonly message: string;
}

export interface TestGateway extends AsyncDisposable {
  readonly token: string;
  readonly port: number;
  /** `http://127.0.0.1:PORT`. */
  readonly url: string;
  readonly socketPath: string;
  readonly directory: string;
  readonly pipeline: Pipeline;
  readonly listeners: Listeners;
  readonly lines: LogLine[];
  readonly audits: AuditRecord[];
  /** The recorded counters, such as `svc.v1.AppService/StartApp ok`. */
  readonly counts: string[];
}

export interface TestGatewayOptions extends Partial<ListenersOptions> {
  readonly handlers?: FakeHandlers;
  /** Default: the contract's, with `handlers`. */
  readonly services?: readonly BoundService[];
}

export function collectLog(): { log: ListenersOptions["log"]; lines: LogLine[] } {
  const lines: LogLine[] = [];
  const at = (level: LogLine["level"]) => (details: object, message: string) =>
    void lines.push({ level, details: details as LogLine["details"], message });
  return { log: { info: at("info"), warn: at("warn"), error: at("error") }, lines };
}

export async function openGateway({
  handlers,
  services,
  ...overrides
}: TestGatewayOptions = {}): Promise<TestGateway> {
  const directory = await mkdtemp(join(tmpdir(), "svc-gateway-"));
  // Other uids must reach the socket.
  await chmod(directory, 0o755);
  const { log, lines } = collectLog();
  const audits: AuditRecord[] = [];
  const counts: string[] = [];
  const pipeline = createPipeline({
    services: services ?? fakeServices(handlers),
    log,
    audit: (record) => audits.push(record),
    observe: ({ method, code }) => counts.push(`${method} ${code}`),
  });
  const token = mintToken("primary");
  const tokens: Tokens = {
    authenticate: (presented) => (presented === token ? { kind: "primary", digest: "0123456789ab" } : null),
  };
  const listeners = new Listeners({
    pipeline,
    tokens,
    mode: "system",
    selfUid: process.getuid?.() ?? 0,
    tcp: { host: "127.0.0.1", port: 0 },
    socketPath: join(directory, "svc.sock"),
    pages: sourcePages(),
    log,
    ...overrides,
  });
  const { tcp, socketPath } = await listeners.start().catch(async (error: unknown) => {
    await rm(directory, { recursive: true, force: true });
    throw error;
  });
  return {
    token,
    port: tcp?.port ?? 0,
    url: `http://127.0.0.1:${tcp?.port ?? 0}`,
    socketPath: socketPath ?? "",
    directory,
    pipeline,
    listeners,
    lines,
    audits,
    counts,
    async [Symbol.asyncDispose]() {
      await listeners.stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}
