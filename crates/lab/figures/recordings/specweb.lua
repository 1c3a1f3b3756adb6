-- Requests by SPECweb's shares: classes 35, 50, 14 and 1 percent, directories by Zipf, files of a class by Poisson, 48 posts
-- among 1,000.
local directories = 20
local classes = { 35, 85, 99, 100 }

local function sums(count, weight)
    local all, sum = {}, 0
    for k = 1, count do
        sum = sum + weight(k)
        all[k] = sum
    end
    return all
end

local zipf = sums(directories, function(rank) return 1 / rank end)
local poisson = 1
local files = sums(9, function(k) poisson = poisson * 5 / k; return poisson end)

local function choose(all)
    local at = math.random() * all[#all]
    for k, sum in ipairs(all) do
        if at < sum then return k - 1 end
    end
    return #all - 1
end

function init()
    math.randomseed(1)
end

function request()
    if math.random(1000) <= 48 then
        return wrk.format("GET", "/post?urlroot=/dir00001&dir=00001&class=1&num=5&client=10003")
    end
    local path = string.format("/dir%05d/class%d_%d", choose(zipf), choose(classes), choose(files))
    return wrk.format("GET", path)
end
