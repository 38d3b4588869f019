/** An app for the policy: its directory is real and belongs to nobody. */
import { chown, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Manifest } from "../../../src/packages/manifest.ts";
import type { RunnableApp } from "../../../src/runtimes/runtime.ts";

export const nobody = 65534;

export interface PolicyDirectory extends AsyncDisposable {
  readonly dir: string;
  app(ownerUid: number, permissions?: Manifest["permissions"]): RunnableApp;
}

/** Holds `repo/`, `volumes/media`, a file, and links that lead out: `repo/etc`, `volumes/out`, `repo/behind/…`. */
export async function policyDirectory(): Promise<PolicyDirectory> {
  const parent = await mkdtemp(join(tmpdir(), "svc-policy-"));
  const dir = join(parent, "web");
  for (const path of ["", "repo", "repo/conf", "volumes", "volumes/media", "data"]) {
    await mkdir(join(dir, path));
    await chown(join(dir, path), nobody, nobody);
  }
  await chown(parent, nobody, nobody);
  await writeFile(join(dir, "repo/app.conf"), "");
  await symlink("/etc", join(dir, "repo/etc"));
  await symlink("/etc", join(dir, "volumes/out"));
  await symlink("..", join(dir, "repo/behind"));
  return {
    dir,
    app: (ownerUid, permissions = []) => ({
      id: "web",
      name: "Web",
      ownerUid,
      uid: nobody,
      directory: dir,
      runDir: join(parent, "run"),
      version: "1.0.0",
      settings: {},
      manifest: { ...manifest, permissions },
    }),
    [Symbol.asyncDispose]: () => rm(parent, { recursive: true }),
  };
}

const manifest: Manifest = {
  id: "web",
  name: "Web",
  version: "1.0.0",
  summary: "",
  homepage: "",
  runtime: {
    kind: "docker",
    image: "svc/web:1",
    env: {},
    privileged: false,
    network: "bridge",
    pid: "container",
    ipc: "container",
    devices: [],
    capabilities: [],
    mounts: [],
  },
  ports: [],
  volumes: [],
  stop: { signal: "SIGTERM", graceMs: 1_000 },
  restart: { policy: "on-failure", delayMs: 100, maxDelayMs: 1_000, maxAttempts: 2, resetAfterMs: 60_000 },
  limits: {},
  permissions: [],
};
