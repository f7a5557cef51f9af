# What the pictures and texts of the chapters read besides the model, as it is embedded in the library and in the engine of live pages:
# patterns under the root of the source tree.
set(embedded_data src/engine/model/*.cpp src/app/picture/page/chapters/*.jinja src/app/picture/page/chapters/*/*.jinja
  examples/fables.txt models/designs/*.json models/training/student/*.json models/training/length/*.json models/book/*/story.json models/book/ladder/ladder.json)
