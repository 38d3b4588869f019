/** Only files of the owner are touched, however fast a name changes between a directory and a link. */
import { chmod, chown, mkdir, readFile, readdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { attackAs } from "../attack/as-user.ts";
import { createWorld, isRoot, rootTest, someUid } from "./support/world.ts";

const rounds = 40;
const secret = "the canary";

rootTest(
  "no operation leaves the app's directory while its owner swaps a directory with a link",
  async (t) => {
    if (!isRoot) return;
    await using world = await createWorld();
    const { dir, app, user } = world;
    // Writable for the owner, so that only our checks protect it.
    const outside = join(dir, "outside");
    await mkdir(join(outside, "sub"), { recursive: true });
    await writeFile(join(outside, "canary"), secret);
    await mkdir(join(app, "data/sub"), { recursive: true });
    await writeFile(join(app, "data/canary"), "mine");
    await symlink(outside, join(app, "swap"));
    for (const path of [outside, join(outside, "sub"), join(outside, "canary"), join(app, "data")])
      await chown(path, someUid, someUid);
    for (const path of ["data/sub", "data/canary"]) await chown(join(app, path), someUid, someUid);
    await chmod(outside, 0o755);
    await using loop = attackAs(someUid, "exchange.mjs", { paths: [join(app, "data"), join(app, "swap")] });
    t.is(await loop.said(), "exchanging");

    const read = new Set<string>();
    let [done, refused] = [0, 0];
    const attempt = async (work: Promise<unknown>): Promise<void> => {
      await work.then(
        () => done++,
        () => refused++,
      );
    };
    const see = async (work: Promise<Buffer>): Promise<void> =>
      attempt(work.then((bytes) => read.add(bytes.toString())));
    for (let round = 0; round < rounds; round++) {
      await see(user.readFile(app, "data/canary"));
      await see(buffer(user.openRead(app, "data/canary")));
      await see(user.readTail(app, ["data/canary"], { maxLines: 1 }).then(({ data }) => data));
      await attempt(user.writeFile(app, "data/canary", "mine"));
      await attempt(user.makeDirs(app, ["data/made"]));
      await attempt(user.rename(app, "data/made", "data/renamed"));
      await attempt(user.removeTree(app, "data/renamed"));
      await attempt(user.extractTar(app, "data/sub", Readable.from([])));
      await attempt(user.copyTree({ root: app, path: "data" }, { root: app, path: `copy-${round}` }));
      await see(user.readFile(app, `copy-${round}/canary`));
      await attempt(user.removeTree(app, `copy-${round}`));
    }
    t.log(`${done} done, ${refused} refused`);
    t.true(done > rounds && refused > rounds, "both were met");
    t.deepEqual([...read], ["mine"]);
    t.is(await readFile(join(outside, "canary"), "utf8"), secret);
    t.deepEqual((await readdir(outside)).toSorted(), ["canary", "sub"]);
  },
);
