/**
 * Kills of the daemon and the helper process at random moments of each writing operation: each file is either unchanged
 * or finished, and nothing else is left. `SVC_LONG=1` takes ten of each. Kills at a known moment, and what can be done
 * after them: `deaths.test.ts`, `kills.test.ts`.
 */
import assert from "node:assert/strict";
import { chown, mkdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import test from "ava";
import type { Client } from "@connectrpc/connect";
import { FileService } from "../../../gen/svc/v1/file_pb.ts";
import { isRoot } from "../../support/daemon.ts";
import { eventually } from "../../support/eventually.ts";
import { keepInMemory } from "../../support/in-memory.ts";
import { helperOf, leftOvers, waitMs } from "../../files/support/deaths.ts";
import { ownerUid } from "../../files/support/ground.ts";
import { sharedGround } from "../../files/support/shared-ground.ts";

/** On another file system than the homes. */
const farBase = keepInMemory() ? "/var/tmp" : "/dev/shm";

const rootTest = isRoot ? test.serial : test.skip;
const newGround = sharedGround();
const isLong = process.env["SVC_LONG"] === "1";
const deaths = isLong ? 10 : 1;
const bigBytes = 24 << 20;
/** With the other fields, less than a message may contain. */
const pieceBytes = 512 << 10;
const smallFiles = 400;

type Files = Client<typeof FileService>;

interface Verb {
  /** Runs a shell as the owner in their home, where `tree` exists. */
  prepare?: string;
  work: (files: Files, home: string, away: string) => Promise<unknown>;
  /** Shell commands in the home, with `$away`: whether everything is unchanged, and whether everything is finished. */
  isOld: string;
  isNew: string;
  /** For operations with many steps: whether each file is either unchanged or finished. */
  isBetween?: string;
}

/** The contents of a directory, compared with everything else. */
const same = (one: string, other: string): string => `diff -r --no-dereference ${one} ${other} >/dev/null`;
/** Asserts that each entry of a directory equals the other directory's entry. */
const partOf = (one: string, other: string): string =>
  `! diff -rq --no-dereference ${one} ${other} | grep -v '^Only in ${other}'`;
const modesIn = (pattern: string): string =>
  `! find tree -mindepth 1 -printf '%m\\n' | grep -qvxE '${pattern}'`;

const verbs: Readonly<Record<string, Verb>> = {
  upload: {
    prepare: "echo old > target",
    work: (files, home) => files.writeFile(uploadOf(join(home, "target"))),
    isOld: "[ $(cat target) = old ]",
    isNew: `[ $(stat -c %s target) = ${bigBytes} ] && ! tr -d u < target | grep -q .`,
  },
  copy: {
    work: (files, home) => files.copyPath({ from: join(home, "tree"), to: join(home, "to") }),
    isOld: "! [ -e to ]",
    isNew: same("to", "tree"),
  },
  "copy over another": {
    prepare: "mkdir to; echo old > to/old",
    work: (files, home) =>
      files.copyPath({ from: join(home, "tree"), to: join(home, "to"), overwrite: true }),
    isOld: "[ $(cat to/*) = old ]",
    isNew: same("to", "tree"),
  },
  move: {
    prepare: "cp -a tree same; mkdir to; echo old > to/old",
    work: (files, home) =>
      files.movePath({ from: join(home, "tree"), to: join(home, "to"), overwrite: true }),
    isOld: `[ $(cat to/*) = old ] && ${same("tree", "same")}`,
    isNew: `${same("to", "same")} && ! [ -e tree ]`,
    // The old file is removed after the rename, so at least one of both always exists.
    isBetween: `${same("to", "same")} || ${same("tree", "same")}`,
  },
  "move to another file system": {
    prepare: "cp -a tree same",
    work: (files, home, away) => files.movePath({ from: join(home, "tree"), to: join(away, "to") }),
    isOld: `${same("tree", "same")} && ! [ -e "$away/to" ]`,
    isNew: `${same('"$away/to"', "same")} && ! [ -e tree ]`,
    isBetween: `${same('"$away/to"', "same")} && ${partOf("tree", "same")}`,
  },
  archive: {
    prepare: "echo old > to.tar.gz",
    work: (files, home) =>
      files.createArchive({ paths: [join(home, "tree")], target: join(home, "to.tar.gz"), overwrite: true }),
    isOld: "[ $(cat to.tar.gz) = old ]",
    isNew: "tar -dzf to.tar.gz",
  },
  unpacking: {
    prepare: "tar -cf tree.tar tree; mkdir to",
    work: (files, home) => files.extractArchive({ path: join(home, "tree.tar"), target: join(home, "to") }),
    isOld: '[ -z "$(ls -A to)" ]',
    isNew: same("to/tree", "tree"),
  },
  "change of modes": {
    prepare: "chmod -R u=rwX,go= tree",
    work: (files, home) =>
      files.setPathAttributes({ path: join(home, "tree"), mode: "0755", recursive: true }),
    isOld: modesIn("600|700"),
    isNew: modesIn("755"),
    isBetween: modesIn("600|700|755"),
  },
  deletion: {
    prepare: "cp -a tree same",
    work: (files, home) => files.deletePaths({ paths: [join(home, "tree")] }),
    isOld: same("tree", "same"),
    isNew: "! [ -e tree ]",
    isBetween: partOf("tree", "same"),
  },
};

async function* uploadOf(path: string) {
  yield { path, overwrite: true, content: { contentType: "", data: Buffer.alloc(0) } };
  const data = Buffer.alloc(pieceBytes, "u");
  for (let sent = 0; sent < bigBytes; sent += data.length) {
    yield { content: { contentType: "", data } };
    await Promise.resolve();
  }
}

/** Duration of each operation without a kill, in milliseconds. */
const took = new Map<string, number>();

for (const victim of ["helper", "daemon"] as const) {
  rootTest(
    `a ${victim} that is killed at a random moment of any operation leaves the old or the new state`,
    async (t) => {
      t.timeout(isLong ? 3_600_000 : 600_000);
      const ground = await newGround();
      const { home, connection, daemon, as } = ground;
      const away = `${farBase}/svc-random-deaths-${process.pid}`;
      await mkdir(away);
      await chown(away, ownerUid, 60);
      t.not((await stat(away)).dev, (await stat(home)).dev);
      await using _away = { [Symbol.asyncDispose]: () => rm(away, { recursive: true, force: true }) };
      const shell = (script: string) => as(ownerUid, "sh", "-c", `away=${away}; cd ${home}; ${script}`);
      const holds = (script: string) =>
        shell(script).then(
          () => true,
          () => false,
        );
      const whole = `mkdir -p master/sub; head -c ${bigBytes} /dev/urandom > master/big; cd master/sub; seq ${smallFiles} | split -l 1 -a 4 -`;
      await shell(whole);
      const counts: Record<string, number> = { old: 0, new: 0, between: 0 };
      for (const [name, verb] of Object.entries(verbs)) {
        const begin = async () => {
          await shell(
            `find . "$away" -mindepth 1 -maxdepth 1 ! -name master -exec rm -rf {} +; cp -a master tree; ${verb.prepare ?? ""}`,
          );
          const files = connection.client(FileService, "grpc");
          await files.statPath({ path: home });
          return files;
        };
        let takesMs = took.get(name);
        if (takesMs === undefined) {
          const undisturbed = await begin();
          const began = performance.now();
          await verb.work(undisturbed, home, away);
          took.set(name, (takesMs = performance.now() - began));
          assert.ok(await holds(verb.isNew), `${name}: not done`);
        }
        for (let death = 0; death < deaths; death++) {
          const files = await begin();
          t.true(await holds(verb.isOld), `${name}: not prepared`);
          const helper = await helperOf(ground);
          const working = verb.work(files, home, away).then(
            () => true,
            () => false,
          );
          const afterMs = takesMs * Math.random();
          await sleep(afterMs);
          if (victim === "helper") process.kill(helper, "SIGKILL");
          else await daemon.kill();
          const isDone = await working;
          if (victim === "daemon") await daemon.restart();
          const what = `${name}, killed after ${afterMs.toFixed(0)} of ${takesMs.toFixed(0)} ms`;
          await eventually(async () => {
            assert.deepEqual(
              [
                ...(await leftOvers(home)),
                ...(await leftOvers(join(home, "to")).catch(() => [])),
                ...(await leftOvers(away)),
              ],
              [],
              what,
            );
          }, waitMs);
          const found = (await holds(verb.isNew)) ? "new" : (await holds(verb.isOld)) ? "old" : "between";
          counts[found] = (counts[found] ?? 0) + 1;
          if (found === "between")
            t.true(
              verb.isBetween !== undefined && (await holds(verb.isBetween)),
              `${what}: ${await shell("ls -laR . $away | grep -v x[a-z]*$ | head -60")}`,
            );
          if (isDone) t.is(found, "new", what);
        }
      }
      t.log(`left by operations: ${JSON.stringify(counts)}`);
    },
  );
}
