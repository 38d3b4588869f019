/** A real S3 server over a directory: versitygw, which .ci/run builds if Go is installed. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { eventually, nextEvent } from "./eventually.ts";
import { freePort } from "./packages.ts";

const program = fileURLToPath(new URL("../../node_modules/.cache/svc-tools/versitygw", import.meta.url));
export const hasS3Server = existsSync(program);
/** For titles of tests that need it. */
export const needsS3Server = hasS3Server
  ? ""
  : " (skipped: versitygw is not built; .ci/run builds it where Go is installed)";

export interface S3Server extends AsyncDisposable {
  readonly endpoint: string;
  readonly port: number;
  readonly accessKey: string;
  readonly secretKey: string;
  /** The directory of the objects: one subdirectory per bucket. */
  readonly dir: string;
  readonly bucket: string;
}

export interface S3ServerOptions {
  /** Serves https with a self-signed certificate. */
  readonly tls?: boolean;
}

export interface TlsS3Server extends S3Server {
  /** PEM; empty without TLS. */
  readonly certificate: string;
}

export async function startS3Server({ tls = false }: S3ServerOptions = {}): Promise<TlsS3Server> {
  const dir = await mkdtemp(join(tmpdir(), "svc-s3-"));
  const objects = join(dir, "objects");
  const bucket = "backups";
  await mkdir(join(objects, bucket), { recursive: true });
  await mkdir(join(dir, "sidecar"));
  const [accessKey, secretKey] = ["AKTEST0123456789", "a-secret-of-the-tests/0123456789+abc"];
  const port = await freePort();
  const certificate = tls ? await writeCertificate(dir) : "";
  const child = spawn(
    program,
    [
      ...["--port", `127.0.0.1:${port}`, "--quiet"],
      ...(tls ? ["--cert", join(dir, "cert.pem"), "--key", join(dir, "key.pem")] : []),
      ...["posix", "--sidecar", join(dir, "sidecar"), objects],
    ],
    {
      stdio: ["ignore", "ignore", "inherit"],
      env: { PATH: process.env["PATH"], ROOT_ACCESS_KEY: accessKey, ROOT_SECRET_KEY: secretKey },
    },
  );
  await eventually(async () => {
    assert.equal(child.exitCode, null, "the S3 server exited");
    const socket = connect(port, "127.0.0.1");
    await once(socket, "connect");
    socket.destroy();
  }, 30_000);
  return {
    endpoint: `${tls ? "https" : "http"}://127.0.0.1:${port}`,
    ...{ port, accessKey, secretKey, dir: objects, bucket, certificate },
    [Symbol.asyncDispose]: async () => {
      if (child.exitCode === null) {
        const exited = nextEvent(child, "exit");
        child.kill();
        await exited;
      }
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** Writes a self-signed certificate for 127.0.0.1 to `cert.pem` and its key to `key.pem`; returns the certificate. */
export async function writeCertificate(dir: string): Promise<string> {
  await promisify(execFile)("openssl", [
    ...["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"],
    ...["-keyout", join(dir, "key.pem"), "-out", join(dir, "cert.pem")],
    ...["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
  ]);
  return readFile(join(dir, "cert.pem"), "utf8");
}
