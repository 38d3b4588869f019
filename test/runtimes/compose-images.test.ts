import test from "ava";
import type { JsonObject } from "../../src/lib/json.ts";
import { ComposeImages, type ComposeImagesOptions } from "../../src/runtimes/compose/compose-images.ts";
import type { RunnableApp } from "../../src/runtimes/runnable-app.ts";
import { ownershipIn } from "../support/ownership.ts";

test("a volume is needed under its engine name, however the file spells it", async (t) => {
  const kept: JsonObject = {
    volumes: {
      own: null,
      named: { name: "svc-shop_other" },
      shared: { external: true },
      "shared-named": { external: true, name: "nas" },
      // The format of files before 3.4 and of compose v1's output.
      "shared-old": { external: { name: "archive" } },
    },
  };
  const options = {
    ownership: ownershipIn("test", ["shop"]),
    projects: { lastDocument: () => Promise.resolve(kept) },
  };
  const images = new ComposeImages(options as unknown as ComposeImagesOptions);
  const { volumes } = await images.needs({ id: "shop" } as RunnableApp);
  t.deepEqual(volumes, ["svc-shop_own", "svc-shop_other", "shared", "nas", "archive"]);
});
