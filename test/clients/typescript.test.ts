/** A client made by openapi-typescript and openapi-fetch alone, against a live daemon. */
import { join } from "node:path";
import test from "ava";
import createClient from "openapi-fetch";
import type { paths } from "../../gen/openapi.ts";
import { startDaemon } from "../support/daemon.ts";
import { freePort, writeRepository } from "../support/packages.ts";

test("a TypeScript client made from openapi.json installs, runs and removes an app", async (t) => {
  await using daemon = await startDaemon();
  const spec = await writeRepository(join(daemon.dir, "web.git"), await freePort(), [
    { files: { LICENSE: "Do as you like.\n" } },
  ]);
  const svc = createClient<paths>({
    baseUrl: `http://127.0.0.1:${daemon.port}`,
    headers: { authorization: `Bearer ${daemon.token}` },
    querySerializer: { array: { style: "form", explode: false } },
  });
  const params = { path: { id: "web" } };

  t.deepEqual((await svc.GET("/v1/apps")).data?.apps, []);

  const { error: unlicensed, response } = await svc.POST("/v1/apps", { body: { spec } });
  t.is(response.status, 409);
  t.is(unlicensed?.reason, "license_required");
  t.deepEqual(
    unlicensed?.license_required?.licenses.map(({ name, text }) => [name, text]),
    [["LICENSE", "Do as you like.\n"]],
  );

  const { data: installed } = await svc.POST("/v1/apps", { body: { spec, license_ack: true } });
  t.is(installed?.state, "STOPPED");
  t.is((await svc.POST("/v1/apps/{id}/start", { params })).data?.state, "RUNNING");
  const { data: stats } = await svc.GET("/v1/stats", { params: { query: { ids: ["web", "other"] } } });
  t.deepEqual(
    stats?.stats.map(({ id }) => id),
    ["web"],
  );

  const { data: settings } = await svc.PUT("/v1/apps/{id}/settings", {
    params,
    body: { values: { greeting: "moin" } },
  });
  t.is(settings?.values?.["greeting"], "moin");
  const { error: broken } = await svc.PUT("/v1/apps/{id}/settings", {
    params,
    body: { values: { colour: "red" } },
  });
  t.is(broken?.reason, "invalid_request");
  t.deepEqual(
    broken?.invalid_request?.violations.map(({ field }) => field),
    ["values.colour"],
  );

  t.truthy((await svc.DELETE("/v1/apps/{id}", { params })).data);
  t.is((await svc.GET("/v1/apps/{id}", { params })).error?.reason, "not_found");
});
