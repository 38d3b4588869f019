/** An app for the policy, whose directory is real and belongs to nobody, and the policy's verdict on it. */
import { chown, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseSubnet } from "../../../src/engine/subnets.ts";
import { SvcError } from "../../../src/errors.ts";
import type { UserHelper } from "../../../src/run-as/user-helper.ts";
import { createUserHelpers, type UserHelpers } from "../../../src/run-as/user-helpers.ts";
import type { Manifest } from "../../../src/packages/manifest/manifest.ts";
import { requireAllowed, type ContainerClaims } from "../../../src/runtimes/containers/container-policy.ts";
import { entryType } from "../../../src/runtimes/entry-type.ts";
import type { RunnableApp } from "../../../src/runtimes/runnable-app.ts";
import { programs } from "../../support/programs.ts";

export const nobody = 65534;
/** The engine's socket. */
export const engineSocket = "/srv/engine/docker.sock";

export type Permission = Manifest["permissions"][number];

export interface PolicyDirectory extends AsyncDisposable {
  readonly dir: string;
  /** Helpers of the directory's owner. */
  readonly userHelpers: UserHelpers;
  /** The uid of the directory's owner. */
  userHelper(): Promise<UserHelper>;
  app(ownerUid: number, permissions?: readonly Permission[]): RunnableApp;
  /** `allowed`, or the reason. */
  verdict(
    claims: readonly ContainerClaims[],
    ownerUid: number,
    permissions?: readonly Permission[],
  ): Promise<string>;
}

/** Contains `repo/`, `volumes/media`, a file, and links that lead out: `repo/etc`, `volumes/out`, `repo/behind/…`. */
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
  const userHelpers = createUserHelpers({ helperPath: programs.userHelper });
  const userHelper = (): Promise<UserHelper> => userHelpers.as(nobody);
  const place: PolicyDirectory = {
    dir,
    userHelpers,
    userHelper,
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
        const owner = await userHelper();
        await requireAllowed(place.app(ownerUid, permissions), claims, {
          user: owner.user,
          typeOf: (path) => entryType(owner, dir, path),
          engineSockets: [engineSocket],
          subnetPool: parseSubnet("10.201.0.0/16")!,
          unprivilegedPortStart: 1024,
          daemonPort: 8420,
        });
        return "allowed";
      } catch (error) {
        if (error instanceof SvcError && error.reason === "denied") return error.message;
        throw error;
      }
    },
    async [Symbol.asyncDispose]() {
      await userHelpers[Symbol.asyncDispose]();
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
