/** Responses that omit a key, or are an empty object, if the value does not exist or was not requested. */
import { create, type DescMessage, type MessageInitShape } from "@bufbuild/protobuf";
import { NullValue } from "@bufbuild/protobuf/wkt";
import test from "ava";
import { AppImageSchema, AppSettingsSchema, LogLineSchema } from "../../../gen/svc/v1/app_pb.ts";
import { BackupStorageSchema, S3LocationSchema } from "../../../gen/svc/v1/backup_pb.ts";
import { ContainerSchema, ImageSchema, VolumeSchema } from "../../../gen/svc/v1/docker_pb.ts";
import { ListeningPortSchema } from "../../../gen/svc/v1/monitor_pb.ts";
import { ProcessSchema } from "../../../gen/svc/v1/process_pb.ts";
import { ScheduleRunSchema, ScheduleSchema } from "../../../gen/svc/v1/schedule_pb.ts";
import { ErrorDetailSchema } from "../../../gen/svc/v1/error_pb.ts";
import { JsonWriter } from "../../../src/server/rest/json-writer.ts";

const writer = new JsonWriter();

const cases: [title: string, type: DescMessage, absent: string[]][] = [
  ["a local storage of the operator", BackupStorageSchema, ["managed_by", "s3", "local"]],
  ["an S3 storage, whose credentials are not listed", S3LocationSchema, ["access_key", "secret_key"]],
  [
    "an operator's job that never fires and never ran",
    ScheduleSchema,
    ["managed_by", "next_run_unix", "last_run", "keep"],
  ],
  ["a running run", ScheduleRunSchema, ["ended_at", "exit_code", "http_status"]],
  ["a container without an app, listed without sizes", ContainerSchema, ["app_id", "size_bytes"]],
  ["an image that no app uses", ImageSchema, ["protected_reason"]],
  ["a volume that no app uses", VolumeSchema, ["protected_reason"]],
  ["a process outside of containers and apps", ProcessSchema, ["container", "app_id"]],
  ["a port whose process is unknown", ListeningPortSchema, ["pid", "process", "container", "app_id"]],
  ["a log line without a timestamp", LogLineSchema, ["time"]],
  [
    "an error without a payload",
    ErrorDetailSchema,
    ["token_denied", "license_required", "ambiguous", "owned_by_app"],
  ],
];
for (const [title, type, absent] of cases) {
  test(`${title} has no ${absent.join(", ")}`, (t) => {
    const json = JSON.parse(writer.message(type, create(type))) as Record<string, unknown>;
    for (const name of absent) {
      const field = type.fields.find((each) => each.name === name);
      t.truthy(field, `${type.name} has a field ${name}`);
      t.false(field!.jsonName in json, name);
    }
  });
}

test("the image of an app without one is an empty object, with each method of the writer", (t) => {
  const image = create(AppImageSchema);
  t.is(writer.message(AppImageSchema, image), "{}");
  t.is(Buffer.concat(writer.bytes(AppImageSchema, image)).toString(), "{}");
  t.is(Buffer.concat([...writer.slices(AppImageSchema, image)]).toString(), "{}");
});

test("only the image of a compose app has services", (t) => {
  const keysOf = (image: MessageInitShape<typeof AppImageSchema>) =>
    Object.keys(JSON.parse(writer.message(AppImageSchema, create(AppImageSchema, image))) as object);
  t.deepEqual(keysOf({ reference: "web:1" }), ["reference"]);
  t.deepEqual(keysOf({ services: [{ service: "db", image: { reference: "db:1" } }] }), ["services"]);
});

test("settings without a schema have a schema of null", (t) => {
  const settings = create(AppSettingsSchema, {
    schema: { kind: { case: "nullValue", value: NullValue.NULL_VALUE } },
  });
  t.is((JSON.parse(writer.message(AppSettingsSchema, settings)) as { schema: unknown }).schema, null);
});
