import test from "ava";
import type { JsonObject } from "../../src/lib/json.ts";
import { ComposeImages, type ComposeImagesOptions } from "../../src/runtimes/compose/compose-images.ts";
import type { RunnableApp } from "../../src/runtimes/runtime.ts";

test("a volume is needed by the name that the engine has for it, however the file says it", async (t) => {
  const kept: JsonObject = {
    volumes: {
      own: null,
      named: { name: "svc-shop_other" },
      shared: { external: true },
      "shared-named": { external: true, name: "nas" },
      // As files before 3.4 say it, and the first generation of compose prints them.
      "shared-old": { external: { name: "archive" } },
    },
  };
  const options = { projects: { kept: () => Promise.resolve(kept) } };
  const images = new ComposeImages(options as unknown as ComposeImagesOptions);
  const { volumes } = await images.needs({ id: "shop" } as RunnableApp);
  t.deepEqual(volumes, ["svc-shop_own", "svc-shop_other", "shared", "nas", "archive"]);
});
