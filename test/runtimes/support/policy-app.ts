/** An app for the policy, whose directory is real and belongs to nobody, and what the policy says of it. */
import { chown, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SvcError } from "../../../src/errors.ts";
import type { Identity } from "../../../src/identity/identity.ts";
import { createIdentities } from "../../../src/identity/identities.ts";
import type { Manifest } from "../../../src/packages/manifest.ts";
import { requireAllowed, type ContainerClaims } from "../../../src/runtimes/container-policy.ts";
import type { RunnableApp } from "../../../src/runtimes/runtime.ts";
import { programs } from "../../support/programs.ts";

export const nobody = 65534;
/** Where the engine listens. */
export const engineSocket = "/srv/engine/docker.sock";

export type Permission = Manifest["permissions"][number];

export interface PolicyDirectory extends AsyncDisposable {
  readonly dir: string;
  /** Of whom the directory belongs to. */
  identity(): Promise<Identity>;
  app(ownerUid: number, permissions?: readonly Permission[]): RunnableApp;
  /** `allowed`, or why not. */
  verdict(
    claims: readonly ContainerClaims[],
    ownerUid: number,
    permissions?: readonly Permission[],
  ): Promise<string>;
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
  const identities = createIdentities({ helperPath: programs.identityHelper });
  const identity = (): Promise<Identity> => identities.as(nobody);
  const place: PolicyDirectory = {
    dir,
    identity,
    app: (ownerUid, permissions = []) => ({
      id: "web",
      name: "Web",
      ownerUid,
      uid: nobody,
      directory: dir,
      runDir: join(parent, "run"),
      version: "1.0.0",
      settings: {},
      startedSettings: null,
      manifest: { ...manifest, permissions: [...permissions] },
    }),
    async verdict(claims, ownerUid, permissions) {
      try {
        await requireAllowed(place.app(ownerUid, permissions), claims, {
          identity: await identity(),
          engineSockets: [engineSocket],
          unprivilegedPortStart: 1024,
        });
        return "allowed";
      } catch (error) {
        if (error instanceof SvcError && error.reason === "denied") return error.message;
        throw error;
      }
    },
    async [Symbol.asyncDispose]() {
      await identities[Symbol.asyncDispose]();
      await rm(parent, { recursive: true });
    },
  };
  return place;
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
