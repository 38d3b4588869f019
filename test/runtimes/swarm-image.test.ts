/** The image references that the nodes of a swarm pull. */
import test from "ava";
import { serviceImage } from "../../src/runtimes/swarm/service-image.ts";

const digest = (name: string, digit: string): string => `${name}@sha256:${digit.repeat(64)}`;

test("an image is referenced by its digest under its own name, and a locally built one by its ID", (t) => {
  const Id = `sha256:${"0".repeat(64)}`;
  const pulled = (image: string, ...RepoDigests: string[]): string =>
    serviceImage(image, { Id, RepoDigests });
  const [web, web2] = [digest("r.example/web", "1"), digest("r.example/web2", "2")];
  t.is(pulled("r.example/web2:1", web, web2), web2);
  t.is(pulled("r.example/web2:1", web), Id);
  t.is(pulled("nginx:1", digest("nginx", "3")), digest("nginx", "3"));
  t.is(pulled("docker.io/library/nginx:1", digest("nginx", "3")), digest("nginx", "3"));
  // With containerd's image store even these have a digest.
  const built = "svc.local/web:abc";
  t.is(serviceImage(built, { Id, RepoDigests: [digest("svc.local/web", "4")] }), Id);
});
