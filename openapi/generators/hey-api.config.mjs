export default {
  input: process.env.OPENAPI_DOCUMENT,
  output: "hey-api",
};
