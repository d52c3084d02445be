/**
 * A document of one operation: its path, and the components that it refers to. Swagger UI takes seconds to resolve the
 * references of the whole document, and milliseconds for those of one operation.
 */

/** @typedef {{path: string, method: string, operation: object}} Place */

/**
 * @param {object} whole - the OpenAPI document
 * @param {string} operationId
 * @returns {Place | null}
 */
export function findOperation(whole, operationId) {
  for (const [path, methods] of Object.entries(whole.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      if (operation.operationId === operationId) return { path, method, operation };
    }
  }
  return null;
}

/**
 * @param {object} whole - the OpenAPI document
 * @param {Place} place
 * @returns {object} an OpenAPI document
 */
export function operationDocument(whole, { path, method, operation }) {
  const components = { securitySchemes: whole.components.securitySchemes };
  const collect = (node) => {
    if (typeof node !== "object" || node === null) return;
    if (typeof node.$ref === "string") {
      const [, , kind, name] = node.$ref.split("/");
      components[kind] ??= {};
      if (!(name in components[kind])) {
        components[kind][name] = whole.components[kind][name];
        collect(components[kind][name]);
      }
    }
    Object.values(node).forEach(collect);
  };
  const shown = withExample(withDescribedFile(operation));
  collect(shown);
  const reply = shown.responses[200] ?? shown.responses[202];
  for (const [what, { content }] of [["request", shown.requestBody ?? {}], ["reply", reply]]) {
    const name = content?.["application/json"]?.schema.$ref?.split("/")[3];
    if (name) components.schemas[name] = { ...components.schemas[name], title: `${operation.summary}: ${what}` };
  }
  return { ...whole, tags: [], paths: { [path]: { [method]: shown } }, components };
}

/** Swagger UI would show the file of a reply as unreadable text. Show its summary, which has its contents, instead. */
function withDescribedFile(operation) {
  const file = operation.responses[200]?.content["application/octet-stream"]?.examples?.npy;
  if (!file) return operation;
  const { "x-file": _, ...npy } = file;
  const schema = { type: "string" };
  const content = { "application/octet-stream": { schema, examples: { npy: { ...npy, value: npy.summary } } } };
  return { ...operation, responses: { ...operation.responses, 200: { ...operation.responses[200], content } } };
}

/**
 * Swagger UI sends the default of every parameter, and samples of its own for every field of a form. Make it send only
 * what the example has.
 */
function withExample(operation) {
  const parameters = (operation.parameters ?? []).map((parameter) => {
    const { default: value, ...schema } = parameter.schema;
    if (value === undefined || "example" in parameter) return parameter;
    return { ...parameter, description: withDefault(parameter.description, value), schema };
  });
  const file = operation.requestBody?.content["application/octet-stream"]?.examples.npy["x-file"];
  const form = operation.requestBody?.content["multipart/form-data"];
  if (!form) return { ...operation, parameters, "x-example-files": file ? { x: file } : {} };
  const files = {};
  const properties = Object.fromEntries(
    Object.entries(form.schema.properties).map(([name, { default: value, ...schema }]) => {
      if (schema.format === "binary") {
        if (name in form.example) files[name] = `docs/examples/${operation.operationId}/${form.example[name]}`;
        return [name, schema];
      }
      const description = withDefault(schema.description, value);
      return [name, { ...schema, ...(description && { description }), example: form.example[name] ?? "" }];
    }),
  );
  const content = { "multipart/form-data": { schema: { ...form.schema, properties } } };
  return { ...operation, requestBody: { ...operation.requestBody, content }, "x-example-files": files };
}

function withDefault(description = "", value) {
  const stated = value === undefined || description.includes("Default:");
  return stated ? description : `${description} Default: ${value}.`.trim();
}
